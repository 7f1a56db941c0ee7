"""A task type of a plugin of a third party in a process of its own."""

import json
from pathlib import Path

from tests.core.test_added_task_types import answer, install, python_model


def test_isolated_class_answers_the_task_type_of_a_plugin(tmp_path: Path) -> None:
    completed = answer(install(tmp_path), python_model(tmp_path / "m", isolate=True))
    assert completed.stdout, completed.stderr
    assert json.loads(completed.stdout) == ["RING_COUNT", {"label": "one", "score": 0.75}]
