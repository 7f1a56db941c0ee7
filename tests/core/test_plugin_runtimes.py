"""Runtimes and layouts of plugins: their order, and names that exist twice."""

from typing import Any

import pytest

from app.core.hooks import Plugin, Ref
from app.core.plugin_loading import PluginError
from app.core.plugins import Registry, registry
from app.core.runtimes.onnxruntime.layouts.layout import Layout
from app.core.runtimes.runtime import ModuleRuntime
from tasks.task import TaskType

LOW = (ModuleRuntime("low", 1, "tests.low", lambda _: False),)
HIGH = (ModuleRuntime("high", 9, "tests.high", lambda _: False),)
LAYOUTS = (Layout(("ring",), (TaskType.OBJECT_DETECTION,), "[b, 3]", lambda _: None),)


def plugin(name: str, *, runtimes: str = "", layouts: str = "") -> Plugin:
    return Plugin(api=1, name=name, summary="For a test.", runtimes=reference(runtimes), layouts=reference(layouts))


def reference(name: str) -> Ref[Any] | None:
    return Ref(f"{__name__}:{name}") if name else None


def test_runtimes_are_sorted_by_priority() -> None:
    plugins = Registry([plugin("a", runtimes="LOW"), plugin("b", runtimes="HIGH")])
    assert [runtime.name for runtime in plugins.runtimes] == ["high", "low"]
    assert [runtime.name for runtime in registry().runtimes][:2] == ["python", "onnxruntime"]


def test_runtime_with_the_name_and_priority_of_another_plugin_is_rejected() -> None:
    plugins = Registry([plugin("a", runtimes="LOW"), plugin("b", runtimes="LOW")])
    with pytest.raises(PluginError, match="plugin b: the plugin a already has the runtime low of priority 1"):
        assert plugins.runtimes


def test_layout_with_the_name_of_another_plugin_is_rejected() -> None:
    plugins = Registry([plugin("a", layouts="LAYOUTS"), plugin("b", layouts="LAYOUTS")])
    with pytest.raises(PluginError, match="plugin b: the plugin a already has the layout ring"):
        assert plugins.layouts


def test_plugin_whose_module_raises_is_named() -> None:
    plugins = Registry([plugin("a", layouts="MISSING")])
    with pytest.raises(PluginError, match=r"plugin a: layouts: AttributeError: .*MISSING"):
        assert plugins.layouts
