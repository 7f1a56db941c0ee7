"""Run the examples of docs/coming_from.md."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from charioteer import InProcessModel
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

PAGE = (ROOT / "docs" / "coming_from.md").read_text()
HALF = ROOT / "fixtures" / "models" / "half_plus_two" / "model.onnx"
DETECT = """
import numpy as np

def detect(image):
    ys, xs = np.nonzero(image[..., 0] > 200)
    return np.array([[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]]), np.array([0.9]), np.array([1])
"""


def example(server: str, title: str) -> str:
    """Return the block with a title in the section of a server."""
    section = PAGE.partition(f"\n## {server}\n")[2].partition("\n## ")[0]
    found = re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```', section, re.MULTILINE | re.DOTALL)
    assert found, (server, title)
    return found[1]


def request_and_answer(server: str) -> tuple[str, Any]:
    """Return the curl command in the section of a server, and the JSON behind it."""
    section = PAGE.partition(f"\n## {server}\n")[2].partition("\n## ")[0]
    found = re.search(r"^(curl .*?)^```\n\n```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found, server
    return found[1], json.loads(found[2])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    for name in ("half", "half_plus_two"):
        (repository / name / "1").mkdir(parents=True)
        shutil.copy(HALF, repository / name / "1")
    (repository / "half" / "config.pbtxt").write_text(example("Triton", "config.pbtxt"))
    with run_server("--model-repository", str(repository), "--tensorflow-serving") as server:
        yield server


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
@pytest.mark.parametrize("origin", ["Triton", "TensorFlow Serving"])
def test_repository_of_another_server_answers_as_on_the_page(origin: str, server: ServerProcess) -> None:
    script, expected = request_and_answer(origin)
    script = script.replace("http://127.0.0.1:8000", server.address)
    script = script.replace("http://127.0.0.1:8501", server.tensorflow_serving_address)
    completed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout) == expected


def load(folder: Path, origin: str) -> InProcessModel:
    for name in ("model.py", "model-settings.json"):
        (folder / name).write_text(example(origin, name))
    return InProcessModel(folder, allow_code=True)


def test_class_of_mlserver_answers(tmp_path: Path) -> None:
    model = load(tmp_path, "MLServer")
    (answer,) = model.run({"x": np.array([1, 2, 5], np.float32)}).values()
    assert answer.tolist() == [2.5, 3, 4.5]


def test_function_of_a_script_answers(tmp_path: Path) -> None:
    (tmp_path / "detect.py").write_text(DETECT)
    image = np.zeros((30, 40, 3), np.uint8)
    image[5:15, 10:30] = 255
    records = msgspec.to_builtins(load(tmp_path, "A FastAPI script").ask(image))
    assert records == [{"label": "dog", "score": 0.9, "xmin": 10, "ymin": 5, "xmax": 30, "ymax": 15}]
