"""The commands, as a user runs them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from tests.support.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"

pytestmark = pytest.mark.slow


def charioteer(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "app", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("model", "image", "field"),
    [
        ("classifier", "shape.jpg", "score"),
        ("detector", "scene.jpg", "xmin"),
        ("oriented-detector", "oriented.jpg", "r"),
        ("segmenter", "scene.jpg", "contour"),
        ("vlm", "shape.jpg", "answer"),
    ],
)
def test_predict_prints_and_draws(tmp_path: Path, model: str, image: str, field: str) -> None:
    drawn = tmp_path / "out.png"
    done = charioteer("predict", IMAGES / image, "--name", model, "--draw", drawn)
    assert done.returncode == 0, done.stderr
    assert field in done.stdout
    before, after = cv2.imread(str(IMAGES / image)), cv2.imread(str(drawn))
    assert before is not None
    assert after is not None
    assert before.shape == after.shape
    assert (before != after).any()


def test_predict_prints_json() -> None:
    done = charioteer("predict", IMAGES / "scene.jpg", "--model", MODELS / "detector", "--top-k", "1", "--json")
    (record,) = json.loads(done.stdout)
    assert list(record) == ["label", "score", "xmin", "ymin", "xmax", "ymax"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((IMAGES / "scene.jpg",), "--name"),
        ((IMAGES / "scene.jpg", "--name", "nobody"), "nobody"),
        ((ROOT / "README.md", "--name", "detector"), "Expected an encoded image"),
        ((IMAGES / "scene.jpg", "--name", "detector", "--draw", "/tmp/x.nothing"), ".nothing"),
    ],
)
def test_predict_says_what_is_wrong(arguments: tuple[str | Path, ...], said: str) -> None:
    done = charioteer("predict", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_models_lists_what_would_be_served() -> None:
    done = charioteer("models")
    assert done.returncode == 0, done.stderr
    for name in ("classifier", "detector", "oriented-detector", "segmenter", "vlm"):
        assert name in done.stdout


def test_check_explains_a_model() -> None:
    done = charioteer("check", MODELS / "detector")
    assert done.returncode == 0, done.stderr
    for word in ("OBJECT_DETECTION", "letterbox", "labels", "input size", "model file"):
        assert word in done.stdout


def test_check_warns_about_a_name_that_means_a_chariot_id(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "half_plus_two", tmp_path / "m-half")
    done = charioteer("check", folder)
    assert done.returncode == 0
    assert "the name 'm-half' means the Chariot id 'half'" in done.stdout


def test_check_fails_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    done = charioteer("check", tmp_path)
    assert done.returncode == 1
    assert "cannot be served" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_check_names_a_field_that_is_misspelt(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes((MODELS / "detector" / "model.onnx").read_bytes())
    (tmp_path / "model-settings.json").write_text('{"task_typ": "OBJECT_DETECTION"}')
    done = charioteer("check", tmp_path)
    assert done.returncode == 1
    assert "task_typ" in done.stderr
