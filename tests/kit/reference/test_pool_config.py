"""The provided `PoolConfig`, in the reference, the stub and the C adapter: integers in range."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.errors import InvalidArgumentError

FILES = ("reference/tinyllm/kv_pool.py", "stubs/tinyllm/kv_pool.py",
         "reference/c/adapter/tinyllm/kv_pool.py")
SIZES = (4, 2, 1, 1, 2)


@pytest.fixture(params=FILES)
def make(request: pytest.FixtureRequest) -> Any:
    """Return the class as one of the files defines it, without the rest of that file."""
    source = Path(ROOT, request.param).read_text("utf-8")
    _, _, rest = source.partition("@dataclass(frozen=True)\nclass PoolConfig:")
    body = rest.partition("\n\n\nclass ")[0]
    module = ModuleType("pool_config")
    exec("from dataclasses import dataclass, fields\nfrom operator import index\n"
         "from tinyllm.errors import InvalidArgumentError\n"
         "@dataclass(frozen=True)\nclass PoolConfig:" + body, vars(module))
    return vars(module)["PoolConfig"]


def test_dimensions_become_plain_integers(make: Any) -> None:
    kinds: tuple[Any, ...] = (np.int8, np.uint8, np.uint32, np.int64)
    for kind in kinds:
        config = make(*[kind(size) for size in SIZES])
        sizes = [config.n_blocks, config.block_tokens, config.n_layers, config.n_kv_heads,
                 config.head_dim]
        assert sizes == [*SIZES]
        assert {type(size) for size in sizes} == {int}
        assert config == make(*SIZES)
    assert make(*[2**32 - 1] * 5).head_dim == 2**32 - 1


@pytest.mark.parametrize("bad", [0, -1, 2**32, True, False, 2.0, "2", None])
def test_a_bad_dimension_raises_and_is_named(make: Any, bad: Any) -> None:
    for at, name in enumerate(("n_blocks", "block_tokens", "n_layers", "n_kv_heads", "head_dim")):
        sizes: list[Any] = [*SIZES]
        sizes[at] = bad
        with pytest.raises(InvalidArgumentError, match=name):
            make(*sizes)
