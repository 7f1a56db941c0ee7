"""Models that run in this process without a server, with inputs as in a notebook."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.core.settings.server import DEMO_MODELS
from app.public_api.in_process import InProcessModel
from tasks.inference.error import InferenceError
from tasks.vision.image import decode_image
from tests.support.data.images import encode_image
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import ROOT

SCENE = decode_image((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()).pixels


class PillowLikeImage:
    """The part of a Pillow image that NumPy reads."""

    __array_interface__ = np.ascontiguousarray(SCENE).__array_interface__


# Functions, because lists of a million numbers would be made while tests are collected.
KINDS: dict[str, Callable[[], Any]] = {
    "array": lambda: SCENE,
    "list": SCENE.tolist,
    "bytes": lambda: encode_image(SCENE),
    "bytearray": lambda: bytearray(encode_image(SCENE)),
    "library": PillowLikeImage,
    "fortran": lambda: np.asfortranarray(SCENE),
    "int64": lambda: SCENE.astype(np.int64),
    "float64": lambda: SCENE / 255,
    "big-endian": lambda: (SCENE / 255).astype(">f4"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_every_kind_are_read(kind: str) -> None:
    records = InProcessModel(DEMO_MODELS / "detector").ask(KINDS[kind]())
    assert len(records) == 5


@pytest.mark.parametrize("mode", ["P", "CMYK", "YCbCr", "L", "LA", "RGBA"])
def test_image_of_pillow_is_read_in_its_colours(mode: str) -> None:
    image: Any = Image.fromarray(SCENE).convert(mode)
    model = InProcessModel(DEMO_MODELS / "detector")
    assert model.ask(image) == model.ask(np.asarray(image.convert("RGB")))


def test_bytes_that_are_no_image_are_rejected() -> None:
    with pytest.raises(InferenceError, match="Expected an encoded image"):
        InProcessModel(DEMO_MODELS / "detector").ask(b"scene")


@pytest.mark.parametrize("image", [SCENE.astype(object), "scene.jpg", np.zeros((4, 4, 3), np.complex64)])
def test_value_that_is_no_image_is_rejected(image: Any) -> None:
    with pytest.raises(InferenceError, match="image-0: Expected an array of numbers, got one of"):
        InProcessModel(DEMO_MODELS / "detector").ask(image)


def test_tensor_model_takes_and_returns_arrays() -> None:
    model = InProcessModel(DEMO_MODELS / "half_plus_three")
    assert model.run({"x": np.array([1, 2, 5], ">f4")})["y"].tolist() == [3.5, 4, 5.5]
    with pytest.raises(InferenceError, match="Expected FP32 for 'x', got INT64"):
        model.run({"x": [1, 2]})


def test_model_may_be_named_by_text_and_takes_tensors_only_for_its_task() -> None:
    model = InProcessModel(str(DEMO_MODELS / "detector"))
    with pytest.raises(InferenceError, match="Expected a model of TENSOR, got one of OBJECT_DETECTION"):
        model.run({"image": SCENE})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("detector", "scorethreshold: Expected one of action, score_threshold, top_k, labels, .*OBJECT_DETECTION"),
        ("half_plus_three", "scorethreshold: Expected no parameters; a model of TENSOR"),
    ],
)
def test_unknown_parameter_is_rejected_with_the_known_ones(name: str, message: str) -> None:
    model = InProcessModel(DEMO_MODELS / name)
    with pytest.raises(InferenceError, match=message):
        model.ask(SCENE, scorethreshold=0.9)
    with pytest.raises(InferenceError, match=message):
        model.ask_text("a text", scorethreshold=0.9)


def test_text_model_that_is_asked_for_an_image_names_ask_text(tmp_path: Path) -> None:
    code = "class Model:\n    def predict(self, text):\n        return text\n"
    folder = write_model(tmp_path / "m", code, task_type="TEXT_GENERATION")
    model = InProcessModel(folder, allow_code=True)
    for question in (SCENE, "a text"):
        with pytest.raises(InferenceError, match="got one of TEXT_GENERATION; pass a text to ask_text"):
            model.ask(question)
