"""A decoder-only transformer over bytes, small, and exact: chunks, batches, threads and caches
change what it costs, never a bit of its answer.

A token is a byte. Each layer is RMSNorm, attention with rotary positions (RoPE) and grouped
queries, RMSNorm, SwiGLU; the weights are integers drawn from a seed, so it writes no sense, but
what it writes depends on every token before. Why nothing can change a bit is said in
`tinyllm.attention`: every sum is one of integers, and below 2**24. The bounds stand where the
sums are.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np

from tinyllm.attention import (
    KV_MOST,
    KV_STEPS,
    MAX_POSITIONS,
    Q_MOST,
    Q_STEPS,
    attend,
    on_grid,
)
from tinyllm.config import ModelConfig
from tinyllm.errors import InvalidArgumentError

VOCABULARY = 256
"""Tokens are the bytes 0..255."""

_STEPS, _MOST = 16, 127  # the input of a matrix: integers, sixteenths of what they stand for
_SHARPEN = 4  # queries count four times, so that one wrong block shows in the text
_TURN_ONE = 4096  # a cosine of 1
_ROPE_BASE = 10_000.0
_WEIGHT_SPREAD = 73.6  # standard deviation of the weights, uniform in -127..127


class KvCache(Protocol):
    """Where one text's K and V are kept: what the model asks of a cache."""

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        """Keep K and V, float32 [n, Hkv, D], of the positions start, start + 1, ..."""

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K and V of positions 0..n-1, float16 or float32 [Hkv, n, D]."""


class Span(NamedTuple):
    """A piece of one text to compute: its tokens, the position of the first, the text's cache."""

    tokens: Sequence[int]
    start: int
    kv: KvCache


class _Layer(NamedTuple):
    attention_gain: np.ndarray  # [width]
    qkv: np.ndarray  # [width, (Hq + 2 Hkv) * D]
    out: np.ndarray  # [Hq * D, width]
    ff_gain: np.ndarray  # [width]
    gate_up: np.ndarray  # [width, 2 * ff]
    down: np.ndarray  # [ff, width]


class Model:
    """The model of a config. It holds no state but its weights: what a text needs is in its cache.

    The same config gives the same weights on every machine.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        width, inner, ff = config.width, config.heads * config.head_dim, config.ff
        qkv = (config.heads + 2 * config.kv_heads) * config.head_dim
        seed = config.seed
        self._embedding = _weights(seed, "embedding", VOCABULARY, width) / np.float32(64)
        self._layers = [
            _Layer(
                _gain(seed, f"{i} attention gain", width),
                _weights(seed, f"{i} qkv", width, qkv),
                _weights(seed, f"{i} out", inner, width),
                _gain(seed, f"{i} ff gain", width),
                _weights(seed, f"{i} gate up", width, 2 * ff),
                _weights(seed, f"{i} down", ff, width),
            )
            for i in range(config.layers)
        ]
        self._gain = _gain(seed, "gain", width)
        self._unembedding = _weights(seed, "unembedding", width, VOCABULARY)
        self._turns = _turns(config.head_dim)

    def forward(self, tokens: Sequence[int], start: int, kv: KvCache) -> np.ndarray:
        """Compute a piece of one text and return its logits, float32 [n, 256].

        The tokens are those at positions start, start + 1, ...; K and V of all positions before
        must be in ``kv``, and theirs are written there.

        Raises ``InvalidArgumentError`` for no tokens, a token that is no byte, or positions beyond
        0..4094, before anything is written; and what the cache raises.
        """
        return self.forward_batch([Span(tokens, start, kv)])[0]

    def forward_batch(self, spans: Sequence[Span]) -> list[np.ndarray]:
        """Compute pieces of several texts in one call and return the logits of each.

        The bits are those of `forward` on each alone. The caches must be of different texts: the
        pieces do not see each other. Errors are those of `forward`; when a cache refuses, others
        may have K and V of their pieces already, which no text has reached yet.
        """
        tokens = [_checked(span) for span in spans]
        if not tokens:
            return []
        ends = np.cumsum([len(t) for t in tokens]).tolist()
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        positions = np.concatenate(
            [np.arange(s.start, s.start + len(t)) for s, t in zip(spans, tokens, strict=True)])
        cos, sin = (turn[positions, None] for turn in self._turns)
        x = self._embedding[np.concatenate(tokens)]
        for number, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, cos, sin)
            seen = np.empty_like(q)
            for (a, b), span in zip(bounds, spans, strict=True):
                span.kv.write(number, span.start, k[a:b], v[a:b])
                keys, values = span.kv.read(number, span.start + b - a)
                seen[a:b] = attend(q[a:b], keys, values, span.start)
            _add(x, _linear(on_grid(seen, _STEPS, _MOST).reshape(len(x), -1), layer.out))
            _add(x, self._feed_forward(layer, x))
        logits = _linear(_norm(x, self._gain), self._unembedding)
        return [logits[a:b] for a, b in bounds]

    def _project(self, layer: _Layer, x: np.ndarray, cos: np.ndarray,
                 sin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return q, k [n, heads, D], turned by their positions, and v, each on its grid."""
        config = self.config
        dots = _linear(_norm(x, layer.attention_gain), layer.qkv)
        made = on_grid(dots, KV_STEPS, KV_MOST).reshape(len(x), -1, config.head_dim)
        turned = _turn(made[:, : config.heads + config.kv_heads], cos, sin)
        unit = _TURN_ONE * KV_STEPS
        q = on_grid(turned[:, : config.heads], _SHARPEN * Q_STEPS / unit, Q_MOST)
        k = on_grid(turned[:, config.heads :], KV_STEPS / unit, KV_MOST)
        v = made[:, config.heads + config.kv_heads :]
        return q, k / np.float32(KV_STEPS), v / np.float32(KV_STEPS)

    def _feed_forward(self, layer: _Layer, x: np.ndarray) -> np.ndarray:
        made = on_grid(_linear(_norm(x, layer.ff_gain), layer.gate_up), _STEPS, _MOST)
        gate, up = made[:, : self.config.ff], made[:, self.config.ff :]
        # silu(gate) * up in sixteenths: the table has 256ths, up has sixteenths.
        gated = _SILU[(gate + _MOST).astype(np.intp)] * up
        return _linear(on_grid(gated, 1 / 256, _MOST), layer.down)


def _linear(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multiply integers |values| <= 127, in sixteenths, with a matrix of integers |w| <= 127.

    |sum| <= 127 * 127 * 1040 = 16,774,160 < 2**24: `ModelConfig` allows no more rows. The product
    is scaled to about the values' own spread.
    """
    dots: np.ndarray = values @ weights
    dots *= np.float32(1 / (_STEPS * _WEIGHT_SPREAD * math.sqrt(len(weights))))
    return dots


def _norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """RMSNorm, then the grid of a matrix's input: integers, sixteenths, |n| <= 127.

    The sum of squares is exact in float64: x is n / 256 with |n| <= (2 * 64 + 1) * 2047 < 2**19
    (the embedding and two additions for each of at most 64 layers), so 1040 squares sum up to less
    than 2**49 in units of 2**-16.
    """
    squares = np.einsum("ij,ij->i", x, x, dtype=np.float64)
    scale = (1 / np.sqrt(squares / x.shape[1] + 2.0**-16)).astype(np.float32)
    normed = x * scale[:, None]
    normed *= gain
    return on_grid(normed, _STEPS, _MOST)


def _add(x: np.ndarray, values: np.ndarray) -> None:
    """Add to the residual stream, whose values are n / 256: exact."""
    step = on_grid(values, KV_STEPS, KV_MOST)
    step /= np.float32(KV_STEPS)
    x += step


def _turn(values: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turn each pair (i, i + D/2) of a head by its position's angles, in units of 1/4096.

    |a * cos - b * sin| <= 2 * 2047 * 4096 < 2**24: exact.
    """
    half = values.shape[-1] // 2
    a, b = values[..., :half], values[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@cache
def _turns(head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines [4095, head_dim / 2] in units of 1/4096, by absolute position.

    No entry lies so near a half that another machine's functions could round it otherwise.
    """
    pairs = np.arange(head_dim // 2)
    angles = np.arange(MAX_POSITIONS)[:, None] * _ROPE_BASE ** (-2.0 * pairs / head_dim)
    cos, sin = (np.rint(_TURN_ONE * f(angles)).astype(np.float32) for f in (np.cos, np.sin))
    return cos, sin


def _weights(seed: int, name: str, rows: int, columns: int) -> np.ndarray:
    """Return a matrix of integers -127..127 as float32: SHAKE-128 of the seed and the name.

    A hash's output, unlike a random generator's, is the same for ever and in every language.
    """
    drawn = hashlib.shake_128(f"tinyllm {seed} {name}".encode()).digest(rows * columns)
    numbers = np.frombuffer(drawn, np.int8).reshape(rows, columns).astype(np.float32)
    weights: np.ndarray = np.maximum(numbers, -127)
    return weights


def _gain(seed: int, name: str, width: int) -> np.ndarray:
    """Return a norm's gains: 1 + n / 256, between a half and one and a half."""
    gains: np.ndarray = 1 + _weights(seed, name, 1, width)[0] / np.float32(256)
    return gains


def _silu() -> np.ndarray:
    """Return x / (1 + exp(-x)) for x = n / 16, |n| <= 127, in units of 1/256."""
    x = np.arange(-_MOST, _MOST + 1) / _STEPS
    table: np.ndarray = np.rint(256 * x / (1 + np.exp(-x))).astype(np.float32)
    return table


_SILU = _silu()


def _checked(span: Span) -> np.ndarray:
    """Return a span's tokens as an array, or refuse it."""
    given = span.tokens
    tokens = np.frombuffer(given, np.uint8) if isinstance(given, bytes) else np.asarray(given)
    if tokens.ndim != 1 or len(tokens) == 0 or tokens.dtype.kind not in "iu":
        raise InvalidArgumentError(f"tokens are bytes, at least one, not {given!r}")
    if np.min(tokens) < 0 or np.max(tokens) >= VOCABULARY:
        raise InvalidArgumentError(f"tokens are bytes, 0..{VOCABULARY - 1}, not {given!r}")
    if not 0 <= span.start <= MAX_POSITIONS - len(tokens):
        raise InvalidArgumentError(f"{len(tokens)} tokens from position {span.start} on: positions "
                                   f"are 0..{MAX_POSITIONS - 1}")
    return tokens
