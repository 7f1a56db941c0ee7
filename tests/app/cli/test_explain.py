"""``charioteer explain``, as a user runs it, and the heat map it draws."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from app.cli.drawing import heat, write_picture
from app.settings.model import ModelError
from tests.app.cli.test_commands import IMAGES, MODELS, ROOT, charioteer
from tests.support.pictures import rectangle


def test_the_heat_map_is_hot_where_it_matters_and_the_picture_shines_through() -> None:
    pixels = rectangle(colour=(255, 255, 255))
    saliency = np.zeros((48, 64), np.float32)
    saliency[:, 32:] = 1
    drawn = heat(pixels, saliency)
    assert drawn.shape == pixels.shape
    assert drawn.dtype == np.uint8
    red, blue = drawn[..., 0].astype(int), drawn[..., 2].astype(int)
    assert (red[:, 32:] > blue[:, 32:]).all()
    assert (blue[:, :32] > red[:, :32]).all()
    lit, dark = drawn[20, 20].astype(int), drawn[20, 2].astype(int)
    assert (lit > dark + 50).all()


def test_a_picture_is_written_as_its_ending_says(tmp_path: Path) -> None:
    pixels = rectangle(colour=(200, 100, 0))
    write_picture(tmp_path / "a.png", pixels)
    read = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_COLOR_RGB)
    assert read is not None
    np.testing.assert_array_equal(read, pixels)
    with pytest.raises(ModelError, match=r"\.nothing"):
        write_picture(tmp_path / "a.nothing", pixels)
    with pytest.raises(ModelError, match="there is no folder"):
        write_picture(tmp_path / "none" / "a.png", pixels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "image", "box"),
    [
        ("classifier", "shape.jpg", (190, 70, 330, 240)),
        ("detector", "scene.jpg", (50, 170, 255, 376)),
        ("oriented-detector", "oriented.jpg", (10, 5, 115, 170)),
        ("segmenter", "scene.jpg", (410, 138, 555, 280)),
    ],
)
def test_explain_points_at_the_object_and_draws_it(
    tmp_path: Path, model: str, image: str, box: tuple[int, int, int, int]
) -> None:
    drawn = tmp_path / "out.png"
    done = charioteer("explain", IMAGES / image, "--name", model, "--samples", "200", "--json", "--draw", drawn)
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)[0]
    left, top, right, bottom = box
    assert left <= best["peak"]["x"] <= right
    assert top <= best["peak"]["y"] <= bottom
    assert (best["method"], best["samples"]) == ("rise", 200)
    before, after = cv2.imread(str(IMAGES / image)), cv2.imread(str(drawn))
    assert before is not None
    assert after is not None
    assert before.shape == after.shape
    # Blue, green, red: the peak is red, most of the rest is blue.
    assert after[..., 0].mean() > after[..., 2].mean()
    x, y = best["peak"]["x"], best["peak"]["y"]
    assert after[y, x, 2] > after[y, x, 0]


@pytest.mark.slow
def test_explain_prints_a_table() -> None:
    done = charioteer("explain", IMAGES / "shape.jpg", "--model", MODELS / "classifier", "--method", "occlusion")
    assert done.returncode == 0, done.stderr
    assert "blue star" in done.stdout
    assert "occlusion" in done.stdout


@pytest.mark.slow
def test_explain_says_that_there_is_nothing() -> None:
    done = charioteer("explain", IMAGES / "photo.jpg", "--name", "detector", "--label", "red star")
    assert done.returncode == 0, done.stderr
    assert "no objects to explain" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((IMAGES / "scene.jpg",), "--name"),
        ((IMAGES / "shape.jpg", "--name", "vlm"), "IMAGE_TEXT_TO_TEXT"),
        ((IMAGES / "shape.jpg", "--name", "classifier", "--label", "dog"), "'dog'"),
        ((IMAGES / "shape.jpg", "--name", "classifier", "--grid", "99"), "grid"),
        (
            (IMAGES / "shape.jpg", "--name", "classifier", "--object", "2", "--draw", "/tmp/x.png"),
            "Cannot draw object 2",
        ),
        ((IMAGES / "shape.jpg", "--name", "classifier", "--draw", "/nowhere/x.png"), "there is no folder /nowhere"),
        ((ROOT / "README.md", "--name", "detector"), "Expected an encoded image"),
    ],
)
def test_explain_says_what_is_wrong(arguments: tuple[str | Path, ...], said: str) -> None:
    done = charioteer("explain", *arguments)
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
