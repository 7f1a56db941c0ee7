"""Run the session of TensorFlow Serving's documentation and our page against a real server process."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.servers.server_process import ROOT, run_server

PAGE = (ROOT / "docs" / "tensorflow_serving.md").read_text()
SESSION = re.findall(r"```sh\n(curl .*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("curl") is None, reason="the sessions need curl")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve half_plus_three as version 123, as the documentation does, and a detector."""
    repository = tmp_path_factory.mktemp("models")
    models = ROOT / "fixtures" / "models"
    shutil.copytree(models / "half_plus_three", repository / "saved_model_half_plus_three" / "123")
    shutil.copytree(models / "detector", repository / "detector")
    settings = {"version_labels": {"stable": "123"}}
    (repository / "saved_model_half_plus_three" / "model-settings.json").write_text(json.dumps(settings))
    with run_server("--model-repository", str(repository), "--tensorflow-serving-cors", "*") as server:
        yield server.tensorflow_serving_address


def run(script: str, address: str) -> str:
    script = script.replace("http://localhost:8501", address)
    completed = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return completed.stdout


def test_page_contains_the_session() -> None:
    assert len(SESSION) == 4


@pytest.mark.parametrize(("script", "expected_output"), SESSION, ids=["status", "predict", "regress", "unknown model"])
def test_session_output_has_the_content_of_the_real_server(address: str, script: str, expected_output: str) -> None:
    assert json.loads(run(script, address)) == json.loads(expected_output)


def test_image_example_of_the_page_is_answered(address: str) -> None:
    (script,) = re.findall(r"```sh\n(printf .*?)```", PAGE, re.DOTALL)
    (row,) = json.loads(run(script, address))["predictions"]
    assert list(row) == ["num_detections", "labels", "scores", "boxes"]
    assert row["num_detections"] == len(row["labels"]) == len(row["boxes"]) > 0
