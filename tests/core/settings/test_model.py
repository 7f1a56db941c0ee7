"""Settings of one model: parsing of model-settings.json, and fields of core and of plugins."""

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.hooks import API, Plugin, Ref
from app.core.plugin_loading import PluginError
from app.core.plugins import PluginRegistry, registry
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSettings, read_settings
from tasks.task import TaskType


def read(folder: Path, content: bytes) -> ModelSettings:
    (folder / SETTINGS_FILE).write_bytes(content)
    return read_settings(folder)


def test_missing_file_gives_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == registry().model_settings()


def test_fields_are_read(tmp_path: Path) -> None:
    content = (
        b'{"task_type": "OBJECT_DETECTION", "labels": ["a"], "preprocessing": {"size": [480, 640]}, "default":true}'
    )
    settings = read(tmp_path, content)
    assert (settings.task_type, settings.labels, settings.default) == (TaskType.OBJECT_DETECTION, ("a",), True)
    assert settings.preprocessing.size == (480, 640)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # An unknown name lists the known ones.
        (b'{"nam": "x"}', "unknown field `nam`; known are name, version, .*labels"),
        (b'{"preprocessing": {"sizes": 5}}', "unknown field `sizes`; known are size, resize, .*channels_last$"),
        (b'{"preprocessing": {"resize": "fit"}}', "preprocessing.resize: .* known are crop, letterbox, .*stretch$"),
        (b'{"task_type": "DETECT"}', "task_type: .*known are IMAGE_CLASSIFICATION, OBJECT_DETECTION, "),
        (b'{"versions": "last"}', "known are all, latest$"),
        (b'{"labels": 1}', "labels: "),
        (b'{"labels": [1]}', r"labels\[0\]: "),
        (b'{"preprocessing": {"size": [0, 640]}}', r"preprocessing.size\[0\]: "),
        (b'{"preprocessing": {"size": [640]}}', "size: "),
        (b'{"preprocessing": {"fill": 256}}', "fill: "),
        (b'{"preprocessing": {"mean": [0.5]}}', "mean: "), (b"[]", "Expected `object`"),
        (b'{"default": 1}', "default: "),
        (b'{"preprocessing": {"std": [1, 0, 1]}}', r"preprocessing\.std\[1\]"),
        (b"", "is not valid JSON"), (b"{", "is not valid JSON"), (b'{"name": "a",}', "is not valid JSON"),
        (b'{"name": "\xff"}', "is not valid JSON"),
    ],
)  # fmt: skip
def test_error_names_the_file_and_the_field(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        read(tmp_path, content)
    assert str(tmp_path / SETTINGS_FILE) in str(raised.value)


class Ring(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    radius: int = 3


def plugin(name: str, section: str, **fields: Any) -> Plugin:
    ring = Ref[type[msgspec.Struct]](f"{__name__}:Ring")
    return Plugin(api=API, name=name, summary="For a test.", model_settings={section: ring}, **fields)


def test_settings_of_core_alone_have_the_defaults_of_a_plugin() -> None:
    assert ModelSettings().of(Ring) == Ring()


def test_composed_settings_can_be_pickled(tmp_path: Path) -> None:
    settings = read(tmp_path, b'{"labels": ["a"], "batching": {"max_size": 2}}')
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_section_is_an_object_and_without_a_name_its_fields_are_top_level() -> None:
    named, flat = PluginRegistry([plugin("a", "ring")]), PluginRegistry([plugin("a", "")])
    assert named.model_settings(ring=Ring(radius=4)).of(Ring) == Ring(radius=4)
    assert flat.model_settings(radius=5).of(Ring) == Ring(radius=5)


@pytest.mark.parametrize(("section", "name"), [("labels", "labels"), ("", "radius")])
def test_setting_that_exists_already_is_rejected(section: str, name: str) -> None:
    plugins = PluginRegistry([plugin("a", section), plugin("b", section)])
    with pytest.raises(PluginError, match=f"already has the model setting {name}"):
        assert plugins.model_settings


def test_unknown_name_is_explained_by_the_plugins_that_are_not_loaded() -> None:
    plugins = PluginRegistry([plugin("a", "ring", requires=("absent",))])
    expected = "; plugins that are not loaded: a (it requires the plugin absent, which is not loaded)"
    assert (plugins.advice(), registry().advice()) == (expected, "")
