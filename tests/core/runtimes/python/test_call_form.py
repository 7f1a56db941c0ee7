"""Test how the argument names of predict() select what it receives."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.settings.model import ModelError
from tests.support.models.model_folders import write_and_load

READ, DETECT = "IMAGE_TEXT_TO_TEXT", "OBJECT_DETECTION"
IMAGES = [np.full((4, width, 3), width, np.uint8) for width in (5, 6)]


def records_of(tmp_path: Path, predict: str, *, task: str = READ, **parameters: object) -> Any:
    """Return the records that a class with this predict() gives for two images."""
    code = f"class Model:\n    {predict}\n"
    model = write_and_load(tmp_path / "m", code, task_type=task)
    return [msgspec.to_builtins(prediction.records()) for prediction in model.predict(IMAGES, **parameters)]


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, image): return {'a': image.shape[1] / 10}",
        "def predict(self, images): return [{'a': image.shape[1] / 10} for image in images]",
        "def predict(self, image, parameters): return {'a': image.shape[1] / 10 + parameters.score_threshold}",
        "def predict(self, images, parameters):"
        " return [{'a': i.shape[1] / 10 + p.score_threshold} for i, p in zip(images, parameters, strict=True)]",
        "async def predict(self, image): return {'a': image.shape[1] / 10}",
        "def predict(self, *, image, extra=3, **others): return {'a': image.shape[1] / 10}",
        "@staticmethod\n    def predict(image): return {'a': image.shape[1] / 10}",
        "@classmethod\n    def predict(cls, image): return {'a': image.shape[1] / 10}",
    ],
)
def test_images_are_passed_singly_or_as_list(tmp_path: Path, predict: str) -> None:
    found = records_of(tmp_path, predict, task="IMAGE_CLASSIFICATION")
    assert found == [[{"label": "a", "score": 0.5}], [{"label": "a", "score": 0.6}]]


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, image, prompt): return f'{prompt}{image.shape[1]}'",
        "def predict(self, image, prompt, parameters): return f'{prompt}{image.shape[1]}'",
        "def predict(self, image, prompts): return [f'{each}{image.shape[1]}' for each in prompts]",
        "def predict(self, images, prompts):"
        " return [[f'{p}{i.shape[1]}' for p in each] for i, each in zip(images, prompts, strict=True)]",
    ],
)
def test_prompts_are_passed_singly_or_as_list(tmp_path: Path, predict: str) -> None:
    found = records_of(tmp_path, predict, prompts=["a", "b"])
    assert [[record["answer"] for record in records] for records in found] == [["a5", "b5"], ["a6", "b6"]]
    assert [record["prompt"] for record in found[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("task", "predict", "error_text"),
    [
        (READ, "def predict(self, imgs): ...", "predict() takes 'imgs', but may take only image, images, "),
        (READ, "def predict(self): ...", "predict() must take image or images after self, by this name, got predict()"),
        (READ, "def predict(self, image, images): ...", "after self, by this name, got predict(image, images)"),
        (READ, "def predict(self, image, /): ...", "takes 'image'"),
        (READ, "def predict(self, images, prompt): ...", "can take prompt only together with image"),
        (READ, "def predict(self, image, prompt, prompts): ...", "without prompts"),
        (READ, "def predict(self, image): yield ''", "may yield texts only if it takes image and prompt"),
        (READ, "predict = 3", "has no predict()"),
        (DETECT, "def predict(self, image): yield []", "only if its answers are texts"),
        (
            DETECT,
            "def predict(self, image, prompt): ...",
            "takes 'prompt', but may take only image, images, parameters",
        ),
    ],
)
def test_unsupported_predict_signature_is_rejected(tmp_path: Path, task: str, predict: str, error_text: str) -> None:
    with pytest.raises(ModelError, match=r"model-settings\.json: ") as caught:
        records_of(tmp_path, predict, task=task)
    assert error_text in str(caught.value)


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, text): return text.upper()",
        "def predict(self, texts): return [text.upper() for text in texts]",
        "def predict(self, text, parameters): return text.upper()[:parameters.max_new_tokens]",
        "def predict(self, text): yield from text.upper()",
    ],
)
def test_texts_are_passed_singly_or_as_list(tmp_path: Path, predict: str) -> None:
    model = write_and_load(tmp_path / "m", f"class Model:\n    {predict}\n", task_type="TEXT_GENERATION")
    assert msgspec.to_builtins(model.ask_text("abc")) == [{"generated_text": "ABC"}]


def test_images_are_writable_rgb_arrays(tmp_path: Path) -> None:
    code = """
        import numpy as np
        class Model:
            def predict(self, image):
                assert image.dtype == np.uint8 and image.flags.writeable and image.flags.c_contiguous
                red, green, blue = image[0, 0].tolist()
                image[:] = 0
                return {"red": red / 255, "green": green / 255, "blue": blue / 255}
    """
    model = write_and_load(tmp_path / "m", code, task_type="IMAGE_CLASSIFICATION")
    found = msgspec.to_builtins(model.ask(np.full((4, 5, 3), (255, 51, 0), np.uint8)))
    assert {record["label"]: record["score"] for record in found} == {"red": 1, "green": 0.2, "blue": 0}
