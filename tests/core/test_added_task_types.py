"""A task type of a plugin of a third party, from its settings to the answers of a model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import ROOT

PLUGIN = ROOT / "tests" / "support" / "plugins" / "rings.py"
MODEL = """
class Model:
    def predict(self, image):
        return {"labels": ["none", "one"], "scores": [0.25, 0.75]}
"""
PROGRAM = """
import sys
import msgspec, numpy as np
from app.core.assembly.in_process import InProcessModel
from app.core.settings.model import ModelError
try:
    model = InProcessModel(sys.argv[1], allow_code=True)
except ModelError as error:
    sys.exit(str(error))
records = model.ask(np.full((8, 8, 3), 255, np.uint8))
print(msgspec.json.encode([model.description.task_type, records[0]]).decode())
"""


def install(tmp_path: Path) -> Path:
    """Install the plugin in a folder, and return that."""
    information = tmp_path / "site" / "rings-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rings\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[charioteer.plugins]\nrings = rings:plugin\n")
    (tmp_path / "site" / "rings.py").write_text(PLUGIN.read_text())
    return tmp_path / "site"


def answer(installed: Path, folder: Path, *, enabled: str = "rings") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{installed}", "CHARIOTEER_PLUGINS": enabled}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def python_model(folder: Path, **settings: Any) -> Path:
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    content = {"implementation": "model:Model", "task_type": "RING_COUNT", **settings}
    (folder / "model-settings.json").write_text(json.dumps(content))
    return folder


def test_python_class_answers_the_task_type_of_a_plugin(tmp_path: Path) -> None:
    completed = answer(install(tmp_path), python_model(tmp_path / "m"))
    assert completed.stdout, completed.stderr
    assert json.loads(completed.stdout) == ["RING_COUNT", {"label": "one", "score": 0.75}]


def test_layout_of_a_plugin_answers_its_task_type(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    graphs.channel_means(tmp_path / "m" / "model.onnx")
    settings = {"task_type": "RING_COUNT", "layout": "rings", "labels": ["none", "one", "two"]}
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps(settings))
    completed = answer(install(tmp_path), tmp_path / "m")
    assert completed.stdout, completed.stderr
    assert json.loads(completed.stdout)[0] == "RING_COUNT"


def test_task_type_of_a_plugin_that_is_not_enabled_is_rejected(tmp_path: Path) -> None:
    completed = answer(install(tmp_path), python_model(tmp_path / "m"), enabled="")
    assert "task_type: Invalid enum value 'RING_COUNT'; known are IMAGE_CLASSIFICATION" in completed.stderr
    assert "plugins that are installed, but not enabled by --plugins: rings" in completed.stderr


def test_added_task_type_is_decoded_and_pickled() -> None:
    # In a process of its own: a task type cannot be removed.
    program = """
import msgspec, pickle
from tasks.task import TaskType, all_task_types
added = TaskType.add("RING_COUNT", "image", "objects", "pixels", "box")
assert TaskType.add("RING_COUNT", "image", "objects", "pixels", "box") is added
assert msgspec.json.decode(b'"RING_COUNT"', type=TaskType) is added
assert msgspec.json.encode(added) == b'"RING_COUNT"'
assert pickle.loads(pickle.dumps(added)) is added
assert added not in list(TaskType) and all_task_types()[-1] is added
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=60)


def test_task_type_whose_name_is_taken_is_rejected() -> None:
    with pytest.raises(ValueError, match="the task type TENSOR exists already"):
        TaskType.add("TENSOR", "tensor", "tensors", "numbers")
