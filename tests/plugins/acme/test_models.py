"""Models of a plugin outside the tree: its task type, layout and parameter, in the process and in one of their own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.acme.process import onnx_model, python_model, run

PROGRAM = """
import json, sys
import numpy as np
from charioteer import InferenceError, InProcessModel, ModelError

try:
    model = InProcessModel(sys.argv[1], allow_code=True)
except ModelError as error:
    sys.exit(str(error))
answers = [model.description.task_type]
for parameters in json.loads(sys.argv[2]):
    try:
        record = model.ask(np.full((8, 8, 3), 255, np.uint8), **parameters)[0]
        answers.append([record.label, record.score])
    except InferenceError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""
isolation = pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])


def ask(folder: Path, *parameters: dict[str, Any]) -> Any:
    completed = run("-c", PROGRAM, str(folder), json.dumps(parameters), plugins="acme")
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@isolation
def test_python_class_answers_the_task_type_and_reads_the_parameter(tmp_path: Path, isolate: bool) -> None:
    folder = python_model(tmp_path, isolate=isolate, parameters={"greet": "all"})
    task_type, default, given, *errors = ask(folder, {}, {"greet": "Ada"}, {"greet": 3}, {"greet": ""}, {"great": "a"})
    assert task_type == "ACME_COUNT"
    assert (default, given) == (["all", 0.75], ["Ada", 0.75])
    assert errors[:2] == [
        "inputs[0].parameters.greet: Expected `str | null`, got `int`",
        "inputs[0].parameters.greet: Expected `str` of length >= 1",
    ]
    assert "one of action, score_threshold, top_k, labels, candidate_labels, greet" in errors[2]


@isolation
def test_layout_answers_the_task_type(tmp_path: Path, isolate: bool) -> None:
    task_type, (label, _) = ask(onnx_model(tmp_path, isolate=isolate), {})
    assert (task_type, label) == ("ACME_COUNT", "none")


def test_task_type_of_a_plugin_that_is_not_enabled_is_rejected(tmp_path: Path) -> None:
    completed = run("-c", PROGRAM, str(python_model(tmp_path)), "[]", plugins="")
    assert "task_type: Invalid enum value 'ACME_COUNT'; known are IMAGE_CLASSIFICATION" in completed.stderr
    assert "plugins that are installed, but not enabled by --plugins: acme" in completed.stderr
