"""What the given model answers, as digests: `model_digests.json` holds for every way to compute it.

`python -m tests.kit.support.model_digests [CHUNK]` prints what this machine, its BLAS and its
settings give with prompts in pieces of CHUNK tokens (whole without one), in the form of the file.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.config import ModelConfig
from tinyllm.contiguous import ContiguousKv
from tinyllm.model import Model, Span

PATH = Path(__file__).with_suffix(".json")
WHOLE = 4095
NEW_TOKENS = 16

# Name -> dimensions, and the lengths of the prompts. The widest model has the most rows and the
# largest heads that are allowed, so its sums come nearest to what float32 can hold.
MODELS = {
    "tiny": (ModelConfig(2, 32, 4, 2, 8, 48, seed=1), (1, 37, 90)),
    "default": (ModelConfig(), (3, 64, 130)),
    "L4 d192": (ModelConfig(4, 192, 6, 2, 32, 512), (70,)),
    "L4 d256": (ModelConfig(4, 256, 8, 2, 32, 768, seed=2**32 - 1), (100,)),
    "widest": (ModelConfig(1, 1040, 16, 4, 64, 1040, seed=3), (40,)),
}


class Answer(NamedTuple):
    """SHA-256 of the prompt's K and V and of its logits, and the bytes that follow it, in hex."""

    kv: str
    logits: str
    tokens: str


def prompt(name: str, n: int) -> bytes:
    """Return ``n`` bytes that every machine makes alike."""
    return hashlib.shake_128(f"{name} {n}".encode()).digest(n)


def answers(model: Model, prompts: Sequence[bytes], chunk: int) -> list[Answer]:
    """Compute prompts side by side, each in pieces of ``chunk``, then the tokens that follow."""
    caches = [ContiguousKv(model.config, len(p) + NEW_TOKENS) for p in prompts]
    logits: list[list[np.ndarray]] = [[] for _ in prompts]
    for at in range(0, max(map(len, prompts)), chunk):
        there = [i for i, p in enumerate(prompts) if at < len(p)]
        spans = [Span(prompts[i][at : at + chunk], at, caches[i]) for i in there]
        for i, made in zip(there, model.forward_batch(spans), strict=True):
            logits[i].append(made)
    stored = [_stored(c, len(p)) for c, p in zip(caches, prompts, strict=True)]
    whole = [np.concatenate(made) for made in logits]
    followed = _follow(model, caches, [len(p) for p in prompts], [made[-1] for made in whole])
    return [Answer(kv, _sha256(made.astype("<f4")), tokens.hex())
            for kv, made, tokens in zip(stored, whole, followed, strict=True)]


def document(chunk: int) -> dict[str, Any]:
    """Return the file's contents, each prompt computed alone, in pieces of ``chunk``."""
    cases = []
    for name, (config, lengths) in MODELS.items():
        model = Model(config)
        for n in lengths:
            (answer,) = answers(model, [prompt(name, n)], chunk)
            cases.append({"model": name, "prompt": n, **answer._asdict()})
    return {"what": "SHA-256 of K and V (float16 [L][K, V][Hkv][n][D]) and of logits (float32 "
                    "[n][256]), little-endian, and the greedy tokens that follow",
            "prompts": "SHAKE-128 of '<model> <length>'", "cases": cases}


def text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def _follow(model: Model, caches: list[ContiguousKv], lengths: list[int],
            last: list[np.ndarray]) -> list[bytes]:
    """Return the greedy tokens after each prompt, all texts a token a step."""
    tokens = [[int(np.argmax(made))] for made in last]
    for at in range(NEW_TOKENS - 1):
        spans = [Span(t[-1:], n + at, c) for t, n, c in zip(tokens, lengths, caches, strict=True)]
        for mine, made in zip(tokens, model.forward_batch(spans), strict=True):
            mine.append(int(made[-1].argmax()))
    return [bytes(t) for t in tokens]


def _stored(cache: ContiguousKv, n: int) -> str:
    layers = range(cache.layers)
    return _sha256(np.array([cache.read(layer, n) for layer in layers]).astype("<f2"))


def _sha256(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(text(document(int(sys.argv[1]) if sys.argv[1:] else WHOLE)))
