"""The given model: its answers are one set of bits, whatever computes them, and its bounds hold."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import ROOT
from tests.kit.support import model_digests as digests

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.attention import KV_MOST, MAX_POSITIONS, attend, on_grid
from tinyllm.config import ModelConfig
from tinyllm.contiguous import ContiguousKv, exact_float16
from tinyllm.errors import InvalidArgumentError
from tinyllm.model import Model, Span

TINY, LENGTHS = digests.MODELS["tiny"]
FILE = digests.PATH.read_text(encoding="utf-8")
CHUNKS = [1, 5, 16, 64, digests.WHOLE]


# One set of bits.


@pytest.mark.parametrize("chunk", CHUNKS)
def test_no_chunk_size_changes_a_bit(chunk: int) -> None:
    assert digests.text(digests.document(chunk)) == FILE


@pytest.mark.parametrize("chunk", CHUNKS)
def test_no_company_changes_a_bit(chunk: int) -> None:
    """Texts of all lengths in one batch have the digests that each has alone."""
    cases = json.loads(FILE)["cases"]
    for name, (config, lengths) in digests.MODELS.items():
        prompts = [digests.prompt(name, n) for n in (*lengths, 11, *lengths)]
        got = digests.answers(Model(config), prompts, chunk)
        want = [{k: c[k] for k in digests.Answer._fields} for c in cases if c["model"] == name]
        assert [a._asdict() for a in got[: len(lengths)]] == want
        assert got[len(lengths) + 1 :] == got[: len(lengths)]


# Names that this OpenBLAS or this processor does not know fall back to others, and prove less. Not
# tried anywhere: other BLAS libraries (MKL, Accelerate, BLIS) and other processors than x86-64.
SETTINGS: list[dict[str, str]] = [
    {"OPENBLAS_NUM_THREADS": "2"},
    {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Prescott"},  # SSE
    {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Sandybridge"},  # AVX
    {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Haswell"},  # AVX2
    {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "SkylakeX"},  # AVX-512
    {"OPENBLAS_NUM_THREADS": "1", "NPY_DISABLE_CPU_FEATURES": ",".join(
        np.show_config("dicts")["SIMD Extensions"].get("found", []))},  # numpy's own loops
]


@pytest.mark.parametrize("more", SETTINGS, ids=lambda more: " ".join(more.values()))
def test_no_setting_of_the_machine_changes_a_bit(more: dict[str, str]) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "NPY", "OMP"))}
    done = subprocess.run([sys.executable, "-m", "tests.kit.support.model_digests", "64"], cwd=ROOT,
                          env={**kept, **more}, capture_output=True, text=True, check=False)
    if done.returncode < 0 and _blas_alone({**kept, **more}) < 0:
        # Then the crash is no code of the kit's: numpy's own product of two matrices dies of it.
        pytest.skip(f"left out: this OpenBLAS crashes by itself under {more}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == FILE


def _blas_alone(env: dict[str, str]) -> int:
    """Return how a process ends that multiplies matrices as large as the model's, and no more."""
    product = "import numpy as np; np.ones((64, 1024), 'f4') @ np.ones((1024, 1024), 'f4')"
    return subprocess.run([sys.executable, "-c", product], env=env, check=False).returncode


def test_the_tables_are_the_same_on_every_machine() -> None:
    """No entry lies so near a half that functions accurate to 1e-12 could round it otherwise."""
    exponents = np.arange(math.ceil(math.log(8192) * 256) + 1) / 256
    assert _from_a_half(4096 * np.exp(-exponents)) > 1e-5
    x = np.arange(-127, 128) / 16
    assert _from_a_half(256 * x / (1 + np.exp(-x))) > 1e-5
    for dim in range(2, 65, 2):
        angles = np.arange(MAX_POSITIONS)[:, None] * 1e4 ** (-2.0 * np.arange(dim // 2) / dim)
        for turned in (np.cos(angles), np.sin(angles)):
            assert _from_a_half(4096 * turned) > 1e-8, dim  # an angle has lost three digits more


def _from_a_half(values: np.ndarray) -> float:
    return float(np.abs(values - np.floor(values) - 0.5).min())


# Attention against whole numbers.


def by_integers(q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> np.ndarray:
    """Attend a query and a head at a time, every sum in integers of 64 bits."""
    n, heads, dim = q.shape
    seen = np.empty(q.shape, np.float32)
    keys, values = ((256 * x.astype(np.float64)).astype(np.int64) for x in (k, v))
    exps = [round(4096 * math.exp(-i / 256)) for i in range(2400)]
    unit = np.float32(256 / (16 * math.sqrt(dim)))
    for i in range(n):
        for h in range(heads):
            group, upto = h // (heads // len(k)), start + i + 1
            scores = keys[group, :upto] @ q[i, h].astype(np.int64)
            below = (scores.max() - scores).astype(np.float32) / np.float32(256) * unit
            parts = np.array([exps[min(int(b), 2399)] for b in below])
            share = np.float32(4096) / np.float32(parts.sum())
            weights = np.rint(parts.astype(np.float32) * share).astype(np.int64)
            seen[i, h] = (weights @ values[group, :upto]) / (256 * 4096)
    return seen


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 30), st.integers(1, 3),
       st.integers(1, 3), st.sampled_from([2, 6, 32, 64]), st.sampled_from([3, 200, KV_MOST]))
def test_attention_is_that_of_integers(seed: int, n: int, start: int, groups: int, kv_heads: int,
                                       dim: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    q = chance.integers(-127, 128, (n, groups * kv_heads, dim)).astype(np.float32)
    k, v = (chance.integers(-most, most + 1, (2, kv_heads, start + n, dim)) / 256)
    want = by_integers(q, k, v, start)
    same_bits(attend(q, k.astype(np.float16), v.astype(np.float16), start), want)
    same_bits(attend(q, k.astype(np.float32), v.astype(np.float32), start), want)
    more_k, more_v = (np.pad(x, ((0, 0), (0, 3), (0, 0)), constant_values=7) for x in (k, v))
    same_bits(attend(q, more_k, more_v, start), want)  # keys after the last query are not seen
    cut = n // 2 or 1
    same_bits(attend(q[:cut], more_k, more_v, start), want[:cut])
    same_bits(attend(q[-1:], more_k, more_v, start + n - 1), want[-1:])


EXTREMES: dict[str, tuple[int, int, int]] = {  # the signs of q, of k and of v
    "all at their largest": (1, 1, 1), "the most negative scores": (1, -1, -1),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_attention_is_exact_at_its_bounds(name: str) -> None:
    """4,095 keys of 64 values, every number as large as it may be."""
    q_sign, k_sign, v_sign = EXTREMES[name]
    q = np.full((1, 2, 64), q_sign * 127, np.float32)
    k, v = (np.full((1, 4095, 64), sign * 2047 / 256, np.float32) for sign in (k_sign, v_sign))
    same_bits(attend(q, k, v, 4094), by_integers(q, k, v, 4094))


def test_the_most_that_weights_can_add_up_to_is_exact() -> None:
    """Weights that are all rounded up from just above a half, which doubles their sum."""
    for near in range(1, 400, 7):
        q = np.full((1, 1, 2), 127, np.float32)
        k = np.zeros((1, 4095, 2), np.float32)
        k[0, 0] = near / 256  # one key above all others, so that they fall to about half a unit
        v = np.full((1, 4095, 2), -2047 / 256, np.float32)
        same_bits(attend(q, k, v, 4094), by_integers(q, k, v, 4094))


@pytest.mark.parametrize(("q", "kv", "start"), [
    ((1, 2, 2), (2, 1, 4), 0), ((1, 3, 2), (2, 1, 2), 0), ((2, 2), (1, 1, 2), 0),
    ((2, 2, 2), (1, 2, 2), 1), ((1, 2, 2), (1, 2, 2), -1), ((0, 2, 2), (1, 2, 2), 0),
    ((1, 1, 65), (1, 1, 65), 0), ((1, 1, 2), (1, 4096, 2), 0), ((1, 0, 2), (0, 1, 2), 0),
])  # fmt: skip
def test_attention_refuses_what_does_not_fit(
    q: tuple[int, ...], kv: tuple[int, ...], start: int
) -> None:
    with pytest.raises(InvalidArgumentError):
        attend(np.zeros(q, np.float32), np.zeros(kv, np.float32), np.zeros(kv, np.float32), start)


# The model.


def test_every_token_matters_to_all_after_it_and_to_none_before() -> None:
    model, text = Model(TINY), digests.prompt("text", 40)
    plain = model.forward(text, 0, ContiguousKv(TINY, 40))
    for at in (0, 13, 39):
        other = bytes([*text[:at], text[at] ^ 1, *text[at + 1 :]])
        changed = (model.forward(other, 0, ContiguousKv(TINY, 40)) != plain).any(axis=1)
        assert not changed[:at].any()
        assert changed[at:].all()


def test_a_wrong_block_shows_in_the_text() -> None:
    """Queries count four times, so greedy texts are no blind test (with weaker ones they are)."""
    config = ModelConfig()
    model, seen = Model(config), 0
    for number in range(24):
        mine, other = (digests.prompt(f"{name} {number}", 96) for name in ("mine", "other"))
        texts = []
        for wrong in (False, True):
            cache, strange = ContiguousKv(config, 120), ContiguousKv(config, 96)
            last = model.forward(mine, 0, cache)[-1]
            model.forward(other, 0, strange)
            if wrong:
                block = slice(16 * (number % 5), 16 * (number % 5) + 16)
                for layer in range(config.layers):
                    k, v = (x[:, block].transpose(1, 0, 2) for x in strange.read(layer, 96))
                    cache.write(layer, block.start, k, v)
                last = model.forward(mine[-1:], 95, cache)[-1]
            texts.append(_greedy(model, cache, last, 96, 20))
        seen += texts[0] != texts[1]
    assert seen >= 22


def _greedy(model: Model, cache: ContiguousKv, last: np.ndarray, at: int, n: int) -> list[int]:
    text = [int(np.argmax(last))]
    for position in range(at, at + n - 1):
        text.append(int(np.argmax(model.forward(text[-1:], position, cache)[-1])))
    return text


REFUSED: list[tuple[Any, int]] = [
    ([], 0), ([256], 0), ([-1], 0), ([1.0], 0), ([True], 0), ("text", 0), ([[1]], 0), ([1], -1),
    ([1], MAX_POSITIONS), ([1, 2], MAX_POSITIONS - 1), (b"", 0),
]


@pytest.mark.parametrize(("tokens", "start"), REFUSED)
def test_the_model_refuses_before_it_writes(tokens: Sequence[int], start: int) -> None:
    model, cache = Model(TINY), ContiguousKv(TINY, 8)
    with pytest.raises(InvalidArgumentError):
        model.forward_batch([Span(b"ab", 0, cache), Span(tokens, start, cache)])
    assert not any(side.any() for layer in range(2) for side in cache.read(layer, 8))
    assert model.forward_batch([]) == []


def test_tokens_are_bytes_in_any_form_and_the_last_position_counts() -> None:
    model = Model(TINY)
    for form in (b"abc", [97, 98, 99], (97, 98, 99), np.array([97, 98, 99], np.uint8)):
        cache = ContiguousKv(TINY, 3)
        assert model.forward(form, 0, cache).shape == (3, 256)  # type: ignore[arg-type]
    long = ContiguousKv(TINY, MAX_POSITIONS)
    assert model.forward([1], MAX_POSITIONS - 1, long).shape == (1, 256)


def test_weights_differ_with_the_seed_and_not_with_the_depth() -> None:
    made = [digests.answers(Model(config), [b"a text"], 16)[0].kv for config in (
        TINY, ModelConfig(2, 32, 4, 2, 8, 48, seed=2))]
    assert made[0] != made[1]
    caches = [ContiguousKv(ModelConfig(layers, 32, 4, 2, 8, 48), 6) for layers in (1, 3)]
    for layers, cache in zip((1, 3), caches, strict=True):
        Model(ModelConfig(layers, 32, 4, 2, 8, 48)).forward(b"a text", 0, cache)
    assert all(np.array_equal(a, b) for a, b in zip(*(c.read(0, 6) for c in caches), strict=True))


# The baseline cache, and the grids.


def test_what_is_on_the_grid_of_k_and_v_is_exact_in_float16() -> None:
    values = np.arange(-KV_MOST, KV_MOST + 1, dtype=np.float32) / 256
    assert np.array_equal(exact_float16(values), values)
    wild = np.array([-9.0, -0.001, 0.00195313, 8.5, 3e35], np.float32)
    assert on_grid(wild, 256, KV_MOST).tolist() == [-2047, 0, 1, 2047, 2047]


def test_exact_float16_takes_what_it_holds_and_refuses_the_rest() -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    numbers = every[~np.isnan(every)]
    for kind in (np.float16, np.float32, np.float64):
        got = exact_float16(numbers.astype(kind))
        assert np.array_equal(got.view(np.uint16), numbers.view(np.uint16))
    for value in (0.1, 2049.0, 65520.0, 1e-9, float("nan")):
        with pytest.raises(InvalidArgumentError):
            exact_float16(np.array([1, value]))


def test_the_contiguous_cache_refuses_what_does_not_fit_and_keeps_the_rest() -> None:
    cache, row = ContiguousKv(TINY, 4), np.ones((1, 2, 8), np.float32)
    cache.write(1, 3, 2 * row, 3 * row)
    calls: list[tuple[int, int, np.ndarray, np.ndarray]] = [
        (2, 0, row, row), (-1, 0, row, row), (0, 4, row, row), (0, -1, row, row),
        (0, 0, row, row[:, :1]), (0, 0, row[0], row[0]), (0, 0, row, row * 0.1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidArgumentError):
            cache.write(*call)
    for layer, n in ((2, 1), (0, 5), (0, -1)):
        with pytest.raises(InvalidArgumentError):
            cache.read(layer, n)
    for layer, (k, v) in enumerate((cache.read(0, 4), cache.read(1, 4))):
        assert k.dtype == v.dtype == np.float16
        assert (int(k.sum()), int(v.sum())) == (layer * 32, layer * 48)
        assert not k[:, :3].any()
