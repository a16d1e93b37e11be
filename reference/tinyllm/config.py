"""The dimensions of the model and the settings of the engine, from a TOML file or a dict.

`formats/engine-config.schema.json` says the same for other programs. A config that exists is
right: what does not hold is refused, one `InvalidArgumentError` that names the key.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Self

from tinyllm.errors import InvalidArgumentError

SCHEMA = 1
"""The version of the form: a config's top key ``schema``."""

PREFIX_CACHES = ("none", "hash", "radix")
"""What ``prefix_cache`` may be (L10.4, section 2.2)."""

_MOST_ROWS = 1040  # of a matrix: 1040 * 127 * 127 < 2**24 keeps its sums exact (tinyllm.model)
_U32 = 0xFFFFFFFF


def _whole(default: int, least: int, most: int) -> Any:
    """A field that is a whole number from ``least`` to ``most``."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True)
class ModelConfig:
    """The dimensions of the model, and the seed of its weights.

    ``heads`` query heads share ``kv_heads`` KV heads evenly; ``head_dim`` is even, because rotary
    positions turn pairs of values; ``heads * head_dim``, ``width`` and ``ff`` are at most 1040 and
    ``head_dim`` at most 64, because more would not add up exactly in float32.
    """

    layers: int = _whole(2, 1, 64)
    width: int = _whole(128, 1, _MOST_ROWS)
    heads: int = _whole(4, 1, _MOST_ROWS // 2)
    kv_heads: int = _whole(2, 1, _MOST_ROWS // 2)
    head_dim: int = _whole(32, 2, 64)
    ff: int = _whole(384, 1, _MOST_ROWS)
    seed: int = _whole(0, 0, _U32)

    def __post_init__(self) -> None:
        _check("model", self)
        _demand(self.heads % self.kv_heads == 0, "model", "kv_heads",
                f"must divide heads, which is {self.heads}", self.kv_heads)
        _demand(self.head_dim % 2 == 0, "model", "head_dim", "must be even", self.head_dim)
        _demand(self.heads * self.head_dim <= _MOST_ROWS, "model", "heads",
                f"times head_dim must be at most {_MOST_ROWS}", self.heads)


@dataclass(frozen=True)
class EngineConfig:
    """The settings of an engine.

    ``n_blocks`` blocks of ``block_tokens`` positions make the pool; ``prefix_cache`` is the mode of
    the block manager. A step computes at most ``max_batch_tokens`` tokens, of one request at most
    ``prefill_chunk``; ``max_running`` requests run at once, so a step has room for a token of each.
    No text, prompt and answer together, is longer than ``max_positions``.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    block_tokens: int = _whole(16, 1, _U32)
    n_blocks: int = _whole(256, 1, _U32)
    prefix_cache: str = "hash"
    prefill_chunk: int = _whole(64, 1, 4095)
    max_batch_tokens: int = _whole(256, 1, _U32)
    max_running: int = _whole(16, 1, _U32)
    max_positions: int = _whole(2048, 1, 4095)

    def __post_init__(self) -> None:
        _check("engine", self)
        if not isinstance(self.model, ModelConfig):
            raise InvalidArgumentError(f"model must be a ModelConfig, not {self.model!r}")
        _demand(self.prefix_cache in PREFIX_CACHES, "engine", "prefix_cache",
                'must be "none", "hash" or "radix"', self.prefix_cache)
        for key in ("prefill_chunk", "max_running"):
            value = getattr(self, key)
            _demand(value <= self.max_batch_tokens, "engine", key,
                    f"must be at most max_batch_tokens, {self.max_batch_tokens}", value)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the config of ``{"schema": 1, "model": {...}, "engine": {...}}``.

        The tables and each of their keys may be left out and then have their defaults. Raises
        ``InvalidArgumentError`` for another schema, a key that does not exist, and a value that is
        of a wrong kind, out of range or at odds with another.
        """
        if not isinstance(data, Mapping):
            raise InvalidArgumentError(f"a config is a table, not {data!r}")
        if type(version := data.get("schema")) is not int or version != SCHEMA:
            raise InvalidArgumentError(f"schema must be {SCHEMA}, the version of the config's "
                                       f"form, not {version!r}")
        _known("the config", data, ["schema", "model", "engine"])
        model, engine = (_table(name, data.get(name, {})) for name in ("model", "engine"))
        _known("[model]", model, list(_wholes(ModelConfig)))
        _known("[engine]", engine, [*_wholes(cls), "prefix_cache"])
        return cls(model=ModelConfig(**model), **engine)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """Return the config of a TOML file; what is wrong with it is said with the file's name.

        Raises ``InvalidArgumentError`` for a file that cannot be read, is no TOML, or as
        `from_dict` does.
        """
        try:
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise InvalidArgumentError(f"{path}: {error.strerror}") from error
        except ValueError as error:  # no UTF-8, no TOML, no config
            raise InvalidArgumentError(f"{path}: {error}") from error


def _wholes(cls: type) -> dict[str, Field[Any]]:
    """Return the fields of a config that are whole numbers, by name."""
    return {f.name: f for f in fields(cls) if "least" in f.metadata}


def _check(table: str, config: Any) -> None:
    """Refuse the first field that is no whole number within its bounds."""
    for name, known in _wholes(type(config)).items():
        least, most = known.metadata["least"], known.metadata["most"]
        value = getattr(config, name)
        _demand(type(value) is int and least <= value <= most, table, name,
                f"must be a whole number from {least} to {most}", value)


def _demand(holds: bool, table: str, key: str, rule: str, value: object) -> None:
    if not holds:
        raise InvalidArgumentError(f"[{table}] {key} {rule}, not {value!r}")


def _known(where: str, data: Mapping[str, Any], keys: list[str]) -> None:
    for key in data:
        if key not in keys:
            raise InvalidArgumentError(f"{where} has no key {key!r}; it has {', '.join(keys)}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"[{name}] must be a table, not {value!r}")
    return dict(value)
