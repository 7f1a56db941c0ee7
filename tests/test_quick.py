"""Which tests `make quick` runs."""

import pytest

from tests.support.quick import select_tests


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["app/core/wire/json_limits.py"], ["tests/core/wire/test_json_limits.py"]),
        (["app/core/wire/new.py"], ["tests/core/wire"]),
        (["app/plugins/drift/static/drift.js", "app/plugins/drift/result.py"], ["tests/plugins/drift"]),
        (["tasks/vision/image.py", "tests/tasks/vision/test_boxes.py"], ["tests/tasks/vision"]),
        (["docs/drift.md", "README.md"], ["tests/test_docs.py"]),
        (["tests/support/polling.py", "pyproject.toml", "app/__init__.py"], []),
    ],
)
def test_changed_files_select_the_select_tests_their_folders(files: list[str], expected: list[str]) -> None:
    assert select_tests(files) == expected
