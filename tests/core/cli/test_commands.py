"""Commands with the options of a user, and the limits on images of commands that run a model."""

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import pytest

from tests.support.command_line import charioteer
from tests.support.data.images import encode_image, rectangle
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"


@pytest.fixture(scope="module")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model of answers that needs no torch, unlike the vision-language model of the fixtures."""
    code = "class Model:\n    def predict(self, image, prompt): return 'a shape'\n"
    return write_model(tmp_path_factory.mktemp("models") / "teller", code, task_type="IMAGE_TEXT_TO_TEXT")


@pytest.mark.parametrize(
    ("model", "image", "field"),
    [
        ("classifier", "shape.jpg", "score"),
        ("detector", "scene.jpg", "xmin"),
        ("oriented-detector", "oriented.jpg", "r"),
        ("segmenter", "scene.jpg", "1 contour, "),
        ("teller", "shape.jpg", "a shape"),
    ],
)
def test_predict_prints_and_draws(tmp_path: Path, teller: Path, model: str, image: str, field: str) -> None:
    output, folder = tmp_path / "out.png", teller if model == "teller" else MODELS / model
    completed = charioteer("predict", IMAGES / image, "--model", folder, "--allow-code", "--draw", output)
    assert completed.returncode == 0, completed.stderr
    assert field in completed.stdout
    before, after = cv2.imread(str(IMAGES / image)), cv2.imread(str(output))
    assert before is not None
    assert after is not None
    assert before.shape == after.shape
    assert (before != after).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("predict", "--image is missing; `charioteer predict --help` describes it"),
        ("keys add", "--name is missing; `charioteer keys add --help` describes it"),
        ("serve --port", "--port needs a value; `charioteer serve --help` describes it"),
        ("serve --prt 1", "Unknown option: --prt. Did you mean --port?"),
        ("serve --port x", 'Invalid value for --port: unable to convert "x" into int'),
        (
            "serve --model a --model b",
            "--model is given more than once; to serve several models, put them into one folder and use "
            "--model-repository FOLDER",
        ),
        ("serve --port 1 --port 2", "--port is given more than once; give it once"),
        ("models a b", "Unexpected argument: b; `charioteer models --help` lists the arguments"),
        ("truth a import b", 'Unknown command "a". Available commands: import'),
    ],
)
def test_invalid_command_line_is_an_error_in_one_line(words: str, message: str) -> None:
    completed = charioteer(*words.split())
    assert (completed.returncode, completed.stderr.partition("\n")[0]) == (2, f"charioteer: {message}")


def test_contradicting_options_are_an_error_in_one_line() -> None:
    completed = charioteer("serve", "x", "--demo")
    message = "charioteer: Use one of PATH, --model, --model-repository and --demo\n"
    assert (completed.returncode, completed.stderr) == (1, message)


def test_file_that_cannot_be_written_is_named_without_a_temporary_file(tmp_path: Path) -> None:
    # Root may write into any folder, but not over a folder.
    (folder := tmp_path / "models.tar.gz").mkdir()
    message = f"charioteer: {folder} cannot be used: Is a directory"
    assert charioteer("pack", DETECTOR, "--output", folder).stderr.splitlines()[-1] == message


def test_predict_says_that_nothing_was_found() -> None:
    completed = charioteer("predict", IMAGES / "oriented.jpg", "--model", MODELS / "detector", "--score-threshold", "1")
    assert (completed.returncode, completed.stdout) == (0, "detector: nothing found\n"), completed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES / "scene.jpg",), "--name"),
        ((IMAGES / "scene.jpg", "--name", "missing"), "missing"),
        (
            (ROOT / "README.md", "--name", "detector"),
            "README.md is not an image. Supported: JPEG, PNG, WebP, BMP, TIFF, GIF",
        ),
        ((IMAGES / "scene.jpg", "--name", "detector", "--draw", "/tmp/x.nothing"), ".nothing"),
        (
            (IMAGES / "scene.jpg", "--name", "detector", "--prompt", "Where?"),
            "--prompt: no effect on a model of OBJECT",
        ),
        ((IMAGES / "scene.jpg", "--name", "detector", "--draw", ROOT), "Expected a file to write, got a folder"),
    ],
)
def test_predict_prints_an_error(arguments: tuple[str | Path, ...], message: str) -> None:
    completed = charioteer("predict", *arguments)
    assert completed.returncode == 1
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_check_prints_task_labels_and_preprocessing() -> None:
    completed = charioteer("check", MODELS / "detector")
    assert completed.returncode == 0, completed.stderr
    for word in ("OBJECT_DETECTION", "letterbox", "labels", "input size", "model file"):
        assert word in completed.stdout


def test_check_warns_about_a_name_that_is_a_chariot_id(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "half_plus_two", tmp_path / "m-half")
    completed = charioteer("check", folder)
    assert completed.returncode == 0
    assert "the name 'm-half' means the Chariot id 'half'" in completed.stdout


@pytest.mark.parametrize(("command", "status"), [(("check",), 1), (("models",), 0)])
def test_broken_model_file_is_reported_beside_other_models(
    tmp_path: Path, command: tuple[str, ...], status: int
) -> None:
    shutil.copytree(MODELS / "half_plus_two", tmp_path / "half")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a model")
    completed = charioteer(*command, tmp_path)
    assert completed.returncode == status
    assert "cannot be served" in completed.stdout
    assert "TENSOR" in completed.stdout
    assert "Traceback" not in completed.stdout + completed.stderr


def test_quantize_writes_a_version_that_is_served(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "classifier", tmp_path / "classifier")
    data = tmp_path / "data"
    data.mkdir()
    for number in range(50):
        shutil.copy(IMAGES / "shape.jpg", data / f"{number}.jpg")
    completed = charioteer("quantize", folder, "--data", data)
    assert completed.returncode == 0, completed.stderr
    assert f"A server of {folder} uses it instead of version 1" in completed.stdout
    listed = charioteer("models", "--model", folder)
    assert "│ classifier │ 2 " in listed.stdout


DETECTOR = ROOT / "fixtures" / "models" / "detector"
CLASSIFIER = ROOT / "fixtures" / "models" / "classifier"
Command = Callable[[Path], list[str | Path]]
COMMANDS: dict[str, Command] = {
    "predict": lambda image: ["predict", image, "--model", DETECTOR],
    "explain": lambda image: ["explain", image, "--model", CLASSIFIER, "--samples", "1"],
    "check": lambda image: ["check", DETECTOR, "--image", image],
    "evaluate": lambda image: ["evaluate", image.parent.parent, "--model", CLASSIFIER],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_command_has_the_options_of_image_limits(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "red square"
    folder.mkdir()
    image = folder / "a.avif"
    image.write_bytes(encode_image(rectangle(64, 48), "AVIF"))
    accepted = charioteer(*command(image), "--max-pixels", "3072", "--allow-avif-jpeg2000")
    assert accepted.returncode == 0, accepted.stderr
    too_large = charioteer(*command(image), "--max-pixels", "3071", "--allow-avif-jpeg2000")
    assert too_large.returncode != 0
    assert "Expected an image of at most 3,071 pixels (--max-pixels), got 64x48 = 3,072" in too_large.stderr
    avif = charioteer(*command(image))
    assert avif.returncode != 0
    assert "the option --allow-avif-jpeg2000 enables them" in avif.stderr
