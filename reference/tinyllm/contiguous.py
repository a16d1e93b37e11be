"""The baseline: one text's K and V in one piece of memory, with room for its longest form.

This is what paging replaces, and what it must equal bit for bit (Project 09, milestone 7).
"""

import numpy as np

from tinyllm.config import ModelConfig
from tinyllm.errors import InvalidArgumentError


class ContiguousKv:
    """A cache for one text of at most ``max_positions`` positions: float16 [L, Hkv, positions, D].

    The memory is taken at once, however short the text stays.
    """

    def __init__(self, config: ModelConfig, max_positions: int) -> None:
        shape = (config.layers, config.kv_heads, max_positions, config.head_dim)
        self.layers, self.max_positions = config.layers, max_positions
        self._k, self._v = np.zeros(shape, np.float16), np.zeros(shape, np.float16)

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        """Keep K and V, [n, Hkv, D], of the positions start, start + 1, ... in one layer.

        Raises ``InvalidArgumentError`` for a layer or positions that are not there, shapes that do
        not fit, and values that float16 does not hold exactly; nothing is written then.
        """
        layers, heads, positions, dim = self._k.shape
        n = len(k)
        if k.shape != (n, heads, dim) or v.shape != k.shape:
            raise InvalidArgumentError(f"K {k.shape} and V {v.shape} must be [n, {heads}, {dim}]")
        if not (0 <= layer < layers and 0 <= start <= positions - n):
            raise InvalidArgumentError(f"layer {layer}, positions {start}..{start + n - 1}: there "
                                       f"are {layers} layers and {positions} positions")
        k, v = exact_float16(k), exact_float16(v)
        self._k[layer, :, start : start + n] = k.transpose(1, 0, 2)
        self._v[layer, :, start : start + n] = v.transpose(1, 0, 2)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K and V of positions 0..n-1, float16 [Hkv, n, D]: views, to be read only."""
        if not (0 <= layer < self.layers and 0 <= n <= self.max_positions):
            raise InvalidArgumentError(f"layer {layer}, {n} positions: there are {self.layers} "
                                       f"layers and {self.max_positions} positions")
        return self._k[layer, :, :n], self._v[layer, :, :n]


def exact_float16(values: np.ndarray) -> np.ndarray:
    """Return ``values`` as float16, which must hold each of them exactly.

    Raises ``InvalidArgumentError`` where a value would be rounded, overflow, or is no number: what
    is read back would differ from what was computed, and a cached answer from a fresh one.
    """
    with np.errstate(over="ignore"):
        stored = values.astype(np.float16)
    if not np.array_equal(stored, values):
        raise InvalidArgumentError("float16 does not hold these values exactly")
    return stored
