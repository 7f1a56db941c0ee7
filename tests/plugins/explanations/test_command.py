"""``charioteer explain`` with the options of a user, and the heat map it draws."""

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from app.core.settings.model import ModelError
from app.plugins.authoring.drawing.image import overlay_heat_map, write_image
from tests.core.cli.test_commands import IMAGES, MODELS
from tests.support.command_line import charioteer, output_of
from tests.support.data.images import rectangle
from tests.support.models.model_folders import write_model

SHAPE = IMAGES / "shape.jpg"


def test_heat_map_is_red_where_salient_and_keeps_the_image_visible() -> None:
    pixels = rectangle(colour=(255, 255, 255))
    saliency = np.zeros((48, 64), np.float32)
    saliency[:, 32:] = 1
    rendered = overlay_heat_map(pixels, saliency)
    assert rendered.shape == pixels.shape
    assert rendered.dtype == np.uint8
    red, blue = rendered[..., 0].astype(int), rendered[..., 2].astype(int)
    assert (red[:, 32:] > blue[:, 32:]).all()
    assert (blue[:, :32] > red[:, :32]).all()
    bright, dark = rendered[20, 20].astype(int), rendered[20, 2].astype(int)
    assert (bright > dark + 50).all()


def test_image_format_follows_the_file_extension(tmp_path: Path) -> None:
    pixels = rectangle(colour=(200, 100, 0))
    write_image(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_COLOR_RGB), pixels)
    with pytest.raises(ModelError, match=r"\.nothing"):
        write_image(tmp_path / "a.nothing", pixels)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("shape.jpg", "--model", MODELS / "classifier", "--method", "occlusion"), ["blue star", "occlusion"]),
        (("photo.jpg", "--name", "detector", "--label", "red star"), ["no objects to explain"]),
    ],
)
def test_explain_prints_a_table_or_that_there_are_no_objects(
    arguments: tuple[str | Path, ...], printed: list[str]
) -> None:
    output = output_of("explain", IMAGES / arguments[0], *arguments[1:])
    assert all(text in output for text in printed)


@pytest.mark.slow
def test_explanation_peaks_at_the_object_and_is_drawn(tmp_path: Path) -> None:
    image, output = IMAGES / "scene.jpg", tmp_path / "out.png"
    done = charioteer("explain", image, "--name", "detector", "--samples", "200", "--draw", output)
    assert done.returncode == 0, done.stderr
    assert "200 samples (rise)" in " ".join(done.stdout.split())
    peak = re.search(r"x (\d+), y (\d+)", done.stdout)
    assert peak is not None
    x, y = map(int, peak.groups())
    assert 50 <= x <= 255
    assert 170 <= y <= 376
    before, after = cv2.imread(str(image)), cv2.imread(str(output))
    assert before is not None
    assert after is not None
    assert before.shape == after.shape
    # Blue, green, red: the peak is red, most of the rest is blue.
    assert after[..., 0].mean() > after[..., 2].mean()
    assert after[y, x, 2] > after[y, x, 0]


def test_explain_prints_what_a_model_says_of_itself(tmp_path: Path) -> None:
    code = """
        class Model:
            def predict(self, image):
                return {"dog": 1.0}

            def explain(self, inputs, predictions):
                return [{"height": len(image)} for image in inputs]
    """
    model = write_model(tmp_path / "m", code, task_type="IMAGE_CLASSIFICATION")
    arguments = ("explain", SHAPE, "--model", model, "--allow-code")
    completed = charioteer(*arguments)
    assert json.loads(completed.stdout) == {"height": 320}, completed.stderr
    rejected = charioteer(*arguments, "--draw", tmp_path / "map.png")
    assert "--draw draws a heat map" in rejected.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES / "scene.jpg",), "--name"),
        ((SHAPE, "--name", "vlm"), "explanations of texts need a model that explains itself"),
        ((SHAPE, "--name", "ranker"), "takes a tensor, not an image; explain its answers with :explain of KServe V1"),
        ((SHAPE, "--name", "classifier", "--label", "dog"), "--label: The model has no class 'dog'"),
        ((SHAPE, "--name", "classifier", "--candidate-labels", "dog"), "charioteer: --candidate-labels: Expected none"),
        ((SHAPE, "--name", "classifier", "--object", "2", "--draw", "/tmp/x.png"), "Cannot draw object 2"),
        ((SHAPE, "--name", "classifier", "--draw", "/nowhere/x.png"), "there is no folder /nowhere"),
        ((IMAGES.parent / "models" / "demo.txt", "--name", "detector"), "is not an image. Supported: JPEG"),
    ],
)
def test_explain_prints_an_error(arguments: tuple[str | Path, ...], message: str) -> None:
    output = output_of("explain", *arguments, status=1)
    assert message in output
    assert "Traceback" not in output
