"""A request parameter of a plugin: every protocol and every task reads it as one of core."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.acme.test_acme import PACKAGE
from tests.support.servers.server_process import ROOT

PROGRAM = """
import sys
import msgspec, numpy as np
from app.core.assembly.in_process import InProcessModel
from tasks.inference.error import InferenceError

model = InProcessModel(sys.argv[1], allow_code=True)
image = np.full((8, 8, 3), 255, np.uint8)
answers = [model.ask(image)[0].label, model.ask(image, greet="Ada")[0].label]
for wrong in ({"greet": 3}, {"greet": ""}, {"great": "Ada"}):
    try:
        model.ask(image, **wrong)
    except InferenceError as error:
        answers.append(str(error))
print(msgspec.json.encode(answers).decode())
"""
MODEL = """
from acme.parameters import AcmeParameters

class Model:
    def predict(self, image, parameters):
        return {"labels": [parameters.of(AcmeParameters).greet or "-"], "scores": [0.75]}
"""


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_python_class_reads_the_parameter_of_a_plugin(tmp_path: Path, isolate: bool) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    settings = {"implementation": "model:Model", "task_type": "IMAGE_CLASSIFICATION", "isolate": isolate}
    (tmp_path / "model-settings.json").write_text(json.dumps({**settings, "parameters": {"greet": "all"}}))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{PACKAGE}", "CHARIOTEER_PLUGINS": "acme"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    default, given, *errors = json.loads(completed.stdout)
    assert (default, given) == ("all", "Ada")
    assert errors[:2] == [
        "inputs[0].parameters.greet: Expected `str | null`, got `int`",
        "inputs[0].parameters.greet: Expected `str` of length >= 1",
    ]
    assert "one of action, score_threshold, top_k, labels, candidate_labels, greet" in errors[2]
