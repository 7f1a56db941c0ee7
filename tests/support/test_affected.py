"""CI runs the slow tests that a change needs."""

from pathlib import PurePosixPath

import pytest

from app.core.plugins import registry
from tests.support.affected import ALL, affected_areas, select

CORE = {"core", "tasks", "conformance", "faults", "platform"}
REQUIRES = {name: plugin.requires for name, plugin in registry().loaded.items()}


@pytest.mark.parametrize(
    ("file", "areas"),
    [
        ("app/plugins/observability/tracing.py", {"plugins/observability"}),
        ("app/plugins/page/static/results.js", {"plugins/page", "browser"}),
        ("tests/plugins/shadow/test_report.py", {"plugins/shadow"}),
        ("tests/faults/test_soak.py", {"faults"}),
        ("deploy/Containerfile", {"deploy", "installed"}),
        ("docs/tutorial.md", {"installed"}),
        ("Makefile", {"installed"}),
        ("fixtures/wire/grps/cases.toml", {"conformance"}),
        ("fixtures/models/detector/model.onnx", {ALL}),
        ("CHANGELOG.md", set()),
        ("app/core/engine/engine.py", CORE),
        ("tasks/task.py", CORE),
        ("pyproject.toml", {ALL}),
        ("tests/support/polling.py", CORE),
    ],
)
def test_file_has_areas(file: str, areas: set[str]) -> None:
    assert areas <= {*affected_areas([file], REQUIRES)}
    assert affected_areas([file], {}) == areas


def test_plugins_that_require_a_changed_one_are_affected() -> None:
    requires = {"a": (), "b": ("a",), "c": ("b", "d"), "d": ()}
    assert affected_areas(["app/plugins/a/x.py"], requires) == {"plugins/a", "plugins/b", "plugins/c"}


def test_affected_tests_and_one_of_every_other_area_are_selected() -> None:
    names = (
        "plugins/a/test_x.py",
        "plugins/a/test_y.py",
        "plugins/b/test_x.py",
        "plugins/b/test_y.py",
        "core/test_z.py",
    )
    tests = [(name, PurePosixPath(name)) for name in names]
    areas = affected_areas(["app/plugins/b/x.py"], REQUIRES)
    assert select(tests, areas) == ["plugins/a/test_x.py", *names[2:]]
    assert select(tests, {ALL}) == [*names]
