"""The engine's config: what is right is taken, what is wrong is named, the schema says the same."""

import json
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.config import PREFIX_CACHES, SCHEMA, EngineConfig, ModelConfig
from tinyllm.errors import InvalidArgumentError

FORM = json.loads((ROOT / "formats/engine-config.schema.json").read_text(encoding="utf-8"))
FULL = """
schema = 1

[model]
layers = 4
width = 256
heads = 8
kv_heads = 2
head_dim = 32
ff = 768
seed = 9

[engine]
block_tokens = 8
n_blocks = 512
prefix_cache = "radix"
prefill_chunk = 32
max_batch_tokens = 128
max_running = 4
max_positions = 4095
"""


def test_a_file_with_every_key_is_read(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text(FULL)
    assert EngineConfig.from_toml(file) == EngineConfig.from_toml(str(file)) == EngineConfig(
        ModelConfig(4, 256, 8, 2, 32, 768, 9), 8, 512, "radix", 32, 128, 4, 4095)


def test_every_key_has_a_default() -> None:
    assert EngineConfig.from_dict({"schema": 1}) == EngineConfig()
    partial = EngineConfig.from_dict({"schema": 1, "engine": {"n_blocks": 7}})
    assert (partial.n_blocks, partial.model) == (7, ModelConfig())


def test_a_config_does_not_change() -> None:
    for config in (EngineConfig(), ModelConfig()):
        with pytest.raises(FrozenInstanceError):
            config.seed = 1  # type: ignore[misc, union-attr]


def test_the_schema_has_the_same_keys_bounds_and_defaults() -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)
    assert FORM["$id"] == f"engine-config-{SCHEMA}"
    for table, config in (("model", ModelConfig), ("engine", EngineConfig)):
        keys = FORM["properties"][table]["properties"]
        held = {f.name: f for f in fields(config) if f.name != "model"}
        assert list(keys) == list(held)
        for name, key in keys.items():
            assert key["default"] == held[name].default
            if name == "prefix_cache":
                assert tuple(key["enum"]) == PREFIX_CACHES
            else:
                bounds = {"least": key["minimum"], "most": key["maximum"]}
                assert held[name].metadata == bounds, name


# What is wrong, and the word of it that the error must say. The last ones are no matter for a
# schema: two keys are at odds.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "schema"), ({"schema": 2}, "schema"), ({"schema": True}, "schema"),
    ({"schema": "1"}, "schema"),
    ({"schema": 1, "modle": {}}, "'modle'"), ({"schema": 1, "model": 3}, "[model]"),
    ({"schema": 1, "model": {"depth": 2}}, "'depth'"),
    ({"schema": 1, "engine": []}, "[engine]"), ({"schema": 1, "engine": {"model": {}}}, "'model'"),
    ({"schema": 1, "engine": {"blocks": 2}}, "'blocks'"),
    ({"schema": 1, "engine": {"prefix_cache": "lru"}}, "prefix_cache"),
    ({"schema": 1, "engine": {"prefix_cache": None}}, "prefix_cache"),
    ({"schema": 1, "engine": {"prefix_cache": []}}, "prefix_cache"),
    ({"schema": 1, "model": {"head_dim": 7}}, "head_dim"),
]  # fmt: skip
AT_ODDS: list[tuple[dict[str, Any], str]] = [
    ({"schema": 1, "model": {"heads": 3}}, "kv_heads"),
    ({"schema": 1, "model": {"heads": 34, "head_dim": 32}}, "heads"),
    ({"schema": 1, "engine": {"prefill_chunk": 257}}, "prefill_chunk"),
    ({"schema": 1, "engine": {"max_running": 300}}, "max_running"),
]  # fmt: skip
for _table, _config in (("model", ModelConfig), ("engine", EngineConfig)):
    for _key in (f for f in fields(_config) if f.metadata):
        WRONG += [({"schema": 1, _table: {_key.name: _value}}, _key.name) for _value in (
            _key.metadata["least"] - 1, _key.metadata["most"] + 1, True, 2.5, "2", None)]


@pytest.mark.parametrize(("data", "word"), WRONG + AT_ODDS, ids=lambda x: str(x))
def test_a_wrong_config_is_refused_and_the_key_is_named(data: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        EngineConfig.from_dict(data)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert jsonschema.Draft202012Validator(FORM).is_valid(data) == ((data, word) in AT_ODDS)


def test_what_is_no_table_is_refused() -> None:
    nothing: list[Any] = [None, [], "schema = 1", 1]
    for data in nothing:
        with pytest.raises(InvalidArgumentError):
            EngineConfig.from_dict(data)
    with pytest.raises(InvalidArgumentError):
        EngineConfig(model={})  # type: ignore[arg-type]


def test_a_file_that_is_no_config_is_told_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    with pytest.raises(InvalidArgumentError, match=r"engine\.toml: No such file"):
        EngineConfig.from_toml(file)
    for text in (b"schema = ", b"schema = 1\n[engine]\nx = 1", b"\xff", b"schema = 1\nschema = 1"):
        file.write_bytes(text)
        with pytest.raises(InvalidArgumentError, match=r"engine\.toml: "):
            EngineConfig.from_toml(file)


def test_the_largest_dimensions_are_allowed() -> None:
    for model in (ModelConfig(64, 1040, 520, 520, 2, 1040), ModelConfig(1, 1, 1, 1, 2, 1)):
        assert EngineConfig(model=model).model is model
