"""Names that plugins offer to users' code and to other plugins."""

from typing import Any

import pytest
from msgspec import Struct

from app.core.hooks import ModelSection, Plugin, Ref
from app.core.plugin_loading import PluginError
from app.core.plugins import Registry
from tasks.object_detection import Detections


def plugin(name: str, **hooks: object) -> Plugin:
    return Plugin(**{"api": 1, "name": name, "summary": "Some.", **hooks})  # pyright: ignore[reportArgumentType]


def test_public_name_is_imported_from_its_module() -> None:
    registry = Registry([plugin("shapes", public={"Detections": "tasks.object_detection"})])
    assert registry.public["Detections"].load() is Detections


def test_public_name_of_two_plugins_is_an_error() -> None:
    public = {"Detections": "tasks.object_detection"}
    with pytest.raises(PluginError, match="plugin b: the plugin a already has the public name Detections"):
        Registry([plugin("a", public=public), plugin("b", public=public)])


def test_skipped_plugin_offers_no_public_name() -> None:
    registry = Registry([plugin("a", requires=("b",), public={"Detections": "tasks.object_detection"})])
    assert list(registry.public) == []


class Tiles(Struct, frozen=True, kw_only=True):
    tile: int = 0


def test_parameter_of_two_plugins_is_an_error() -> None:
    sections = (ModelSection(type=Ref(f"{__name__}:Tiles")),)
    registry = Registry([plugin("a", parameters=sections), plugin("b", parameters=sections)])
    with pytest.raises(PluginError, match="plugin b: the plugin a already has the parameter tile"):
        assert registry.parameters


def fail(host: object) -> None:
    raise RuntimeError("no licence")


def test_plugin_that_cannot_start_is_named() -> None:
    registry = Registry([plugin("a", start=Ref[Any](f"{__name__}:fail"))])
    with pytest.raises(RuntimeError, match="no licence") as caught:
        registry.start(None)  # pyright: ignore[reportArgumentType]
    assert caught.value.__notes__ == ["The plugin a could not start"]


def test_plugin_that_names_a_missing_object_is_named() -> None:
    registry = Registry([plugin("a", extends={"point": Ref[Any]("tasks.no_such:NAMES")})])
    with pytest.raises(PluginError, match="plugin a: extends: ModuleNotFoundError"):
        registry.extensions("point")
