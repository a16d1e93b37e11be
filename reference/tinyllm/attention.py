"""The attention of one call, in exact arithmetic: no chunking can change a bit of its answer.

The last bits of a float32 sum depend on the order of its additions, and a BLAS orders them by the
shapes it is given, so a prompt in chunks would differ from the same prompt whole. Here each sum has
terms that are integers (times one power of two), and the absolute values of its terms add up to
less than 2**24. float32 holds every integer up to there, so each product and each partial sum, in
any order and with any grouping, is exact. What is no sum (a multiplication by a constant, a
division, a rounding) is one IEEE operation a value, which no shape can change.
"""

import math

import numpy as np

from tinyllm.errors import InvalidArgumentError

MAX_POSITIONS = 4095
"""Most positions of one text: sums of weights stay below 2**24 (see `attend`)."""

MAX_HEAD_DIM = 64
"""Most values of one head: scores stay below 2**24 (see `attend`)."""

Q_STEPS, Q_MOST = 16, 127
"""A query's values are integers, sixteenths of what they stand for, at most this large."""

KV_STEPS, KV_MOST = 256, 2047
"""Values of K and V are n / 256 with |n| <= 2047: 11 bits, so float16 holds them exactly."""

_WEIGHT_ONE = 4096  # a weight of 1
_STEPS = 256  # entries of the table for each unit of the exponent

# exp(-i / 256) in units of 1/4096, to the first entry that rounds to 0 (exp(-x) < 1/8192). No entry
# lies so near a half that another machine's exp could round it to the other side.
_EXP = np.rint(_WEIGHT_ONE * np.exp(-np.arange(math.ceil(math.log(8192) * _STEPS) + 1) / _STEPS))
_EXP = _EXP.astype(np.float32)

_HIDDEN = np.float32(-(2**20))  # below any score by more than the table reaches: |score| < 2**16


def on_grid(values: np.ndarray, steps: float, most: int) -> np.ndarray:
    """Return ``values * steps`` rounded to integers within -most..most, as new float32."""
    scaled: np.ndarray = np.multiply(values, np.float32(steps), dtype=np.float32)
    np.rint(scaled, out=scaled)
    np.minimum(scaled, np.float32(most), out=scaled)
    np.maximum(scaled, np.float32(-most), out=scaled)
    return scaled


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> np.ndarray:
    """Return what the queries at positions start, start + 1, ... see: float32 [n, Hq, D].

    ``q`` is [n, Hq, D], integers with |q| <= 127 in units of 1/16. ``k`` and ``v`` are [Hkv, m, D],
    position j of the text at index j, multiples of 1/256 below 8 in absolute value, float16 or
    float32. Query head h reads KV head h // (Hq / Hkv). A query sees the positions up to its own;
    keys past them are allowed and have weight 0.

    Raises ``InvalidArgumentError`` for shapes that do not fit, more than 4095 keys, a head_dim
    above 64, or a query whose own position has no key.
    """
    _check(q, k, v, start)
    (n, heads, dim), (kv_heads, m, _) = q.shape, k.shape
    grouped = _float32(q).reshape(n, kv_heads, -1, dim).transpose(1, 2, 0, 3)
    # In units of 1/256: |sum| <= D * 127 * 2047 <= 64 * 127 * 2047 = 16,638,016 < 2**24.
    scores = grouped.reshape(kv_heads, -1, dim) @ _float32(k).transpose(0, 2, 1)
    weights = _weights(scores.reshape(kv_heads, -1, n, m), start, dim)
    # A weight is rounded up only from above a half, so at most doubled: those of a row come to at
    # most 8192, give or take what two roundings before add, less than 8192 * 2**-22. In units of
    # 1/256: |sum| <= (8192 + 1/512) * 2047 < 16,769,029 < 2**24.
    seen = weights.reshape(kv_heads, -1, m) @ _float32(v)
    seen *= np.float32(1 / _WEIGHT_ONE)
    back = seen.reshape(kv_heads, heads // kv_heads, n, dim).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(back).reshape(n, heads, dim)


def _weights(scores: np.ndarray, start: int, dim: int) -> np.ndarray:
    """Turn scores [..., n, m] into softmax weights, in place: integers in units of 1/4096."""
    n, m = scores.shape[-2:]
    if m > start + 1:
        later = np.arange(m) > start + np.arange(n)[:, None]
        np.copyto(scores, _HIDDEN, where=later)
    # From here on a score is how far it lies below the row's largest, in entries of the table. The
    # difference is exact as far as the table goes; the product is one rounding.
    np.subtract(scores.max(axis=-1, keepdims=True), scores, out=scores)
    scores *= np.float32(_STEPS / (Q_STEPS * math.sqrt(dim)))
    np.take(_EXP, scores.astype(np.intp), out=scores, mode="clip")
    # At most 4095 weights of at most 4096: 4095 * 4096 = 16,773,120 < 2**24.
    scores *= np.float32(_WEIGHT_ONE) / scores.sum(axis=-1, keepdims=True)
    np.rint(scores, out=scores)
    return scores


def _float32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32, copy=False)


def _check(q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> None:
    if q.ndim != 3 or k.ndim != 3 or k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise InvalidArgumentError(f"queries {q.shape}, keys {k.shape} and values {v.shape} do not "
                                   "fit: [n, Hq, D], [Hkv, m, D] and [Hkv, m, D] are needed")
    (n, heads, dim), (kv_heads, m, _) = q.shape, k.shape
    if kv_heads == 0 or heads == 0 or heads % kv_heads:
        raise InvalidArgumentError(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
    if not 0 < dim <= MAX_HEAD_DIM or m > MAX_POSITIONS:
        raise InvalidArgumentError(f"{m} keys of {dim} values: the arithmetic is exact for at most "
                                   f"{MAX_POSITIONS} of {MAX_HEAD_DIM}")
    if not (n > 0 and 0 <= start <= m - n):
        raise InvalidArgumentError(f"{n} queries from position {start} on, but {m} keys")
