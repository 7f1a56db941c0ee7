"""What the names of predict's arguments ask for."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.settings.model import ModelError
from tests.support.model_folders import loaded

IMAGES = [np.full((4, width, 3), width, np.uint8) for width in (5, 6)]


def told(tmp_path: Path, predict: str, *, task: str = "IMAGE_TEXT_TO_TEXT", **parameters: object) -> Any:
    """What such a class says to two images."""
    code = f"class Model:\n    {predict}\n"
    model = loaded(tmp_path / "m", code, task_type=task)
    return [msgspec.to_builtins(each.records()) for each in model.predict(IMAGES, **parameters)]


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, image): return {'a': image.shape[1] / 10}",
        "def predict(self, images): return [{'a': image.shape[1] / 10} for image in images]",
        "def predict(self, images): return tuple({'a': image.shape[1] / 10} for image in images)",
        "def predict(self, image, parameters): return {'a': image.shape[1] / 10 + parameters.score_threshold}",
        "def predict(self, parameters, image): return {'a': image.shape[1] / 10 + parameters.score_threshold}",
        "def predict(self, images, parameters):"
        " return [{'a': i.shape[1] / 10 + p.score_threshold} for i, p in zip(images, parameters, strict=True)]",
        "async def predict(self, image): return {'a': image.shape[1] / 10}",
        "async def predict(self, images): return [{'a': image.shape[1] / 10} for image in images]",
        "def predict(self, *, image, extra=3, **others): return {'a': image.shape[1] / 10}",
        "@staticmethod\n    def predict(image): return {'a': image.shape[1] / 10}",
        "@classmethod\n    def predict(cls, image): return {'a': image.shape[1] / 10}",
        "predict = staticmethod(lambda image: {'a': image.shape[1] / 10})",
    ],
)
def test_images_come_one_by_one_or_together(tmp_path: Path, predict: str) -> None:
    found = told(tmp_path, predict, task="IMAGE_CLASSIFICATION")
    assert found == [[{"label": "a", "score": 0.5}], [{"label": "a", "score": 0.6}]]


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, image, prompt): return f'{prompt}{image.shape[1]}'",
        "async def predict(self, image, prompt): return f'{prompt}{image.shape[1]}'",
        "def predict(self, image, prompt, parameters): return f'{prompt}{image.shape[1]}'",
        "def predict(self, image, prompts): return [f'{each}{image.shape[1]}' for each in prompts]",
        "def predict(self, images, prompts):"
        " return [[f'{p}{i.shape[1]}' for p in each] for i, each in zip(images, prompts, strict=True)]",
        "def predict(self, image, prompt): yield prompt; yield ''; yield str(image.shape[1])",
        "async def predict(self, image, prompt):\n        yield prompt\n        yield str(image.shape[1])",
    ],
)
def test_prompts_come_one_by_one_or_together(tmp_path: Path, predict: str) -> None:
    found = told(tmp_path, predict, prompts=["a", "b"])
    assert [[each["answer"] for each in records] for records in found] == [["a5", "b5"], ["a6", "b6"]]
    assert [each["prompt"] for each in found[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("predict", "said"),
    [
        ("def predict(self, imgs): ...", "predict() takes 'imgs', but may take only image, images, "),
        ("def predict(self): ...", "predict() must take image or images after self, by this name, got predict()"),
        ("def predict(self, parameters): ...", "must take image or images"),
        (
            "def predict(self, image, images): ...",
            "must take image or images after self, by this name, got predict(image, images)",
        ),
        ("def predict(self, image, /): ...", "takes 'image'"),
        ("def predict(self, images, prompt): ...", "can take prompt only together with image"),
        ("def predict(self, image, prompt, prompts): ...", "without prompts"),
        ("def predict(self, image): yield ''", "may yield texts only if it takes image and prompt"),
        ("predict = 3", "has no predict()"),
        ("pass", "has no predict()"),
    ],
)
def test_what_is_not_to_be_had_is_named(tmp_path: Path, predict: str, said: str) -> None:
    with pytest.raises(ModelError, match=r"model-settings\.json: ") as caught:
        told(tmp_path, predict)
    assert said in str(caught.value)


def test_detectors_yield_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="only if its answers are texts"):
        told(tmp_path, "def predict(self, image): yield []", task="OBJECT_DETECTION")


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(self, text): return text.upper()",
        "def predict(self, texts): return [text.upper() for text in texts]",
        "def predict(self, text, parameters): return text.upper()[:parameters.max_new_tokens]",
        "def predict(self, text): yield from text.upper()",
        "async def predict(self, text): return text.upper()",
    ],
)
def test_texts_come_one_by_one_or_together(tmp_path: Path, predict: str) -> None:
    model = loaded(tmp_path / "m", f"class Model:\n    {predict}\n", task_type="TEXT_GENERATION")
    assert msgspec.to_builtins(model.ask_text("abc")) == [{"generated_text": "ABC"}]


def test_prompts_are_not_for_detectors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"takes 'prompt', but may take only image, images, parameters"):
        told(tmp_path, "def predict(self, image, prompt): ...", task="OBJECT_DETECTION")


def test_images_are_upright_rgb_and_may_be_written_to(tmp_path: Path) -> None:
    code = """
        import numpy as np
        class Model:
            def predict(self, image):
                assert image.dtype == np.uint8 and image.flags.writeable and image.flags.c_contiguous
                red, green, blue = image[0, 0].tolist()
                image[:] = 0
                return {"red": red / 255, "green": green / 255, "blue": blue / 255}
    """
    model = loaded(tmp_path / "m", code, task_type="IMAGE_CLASSIFICATION")
    found = msgspec.to_builtins(model.ask(np.full((4, 5, 3), (255, 51, 0), np.uint8)))
    assert {each["label"]: each["score"] for each in found} == {"red": 1, "green": 0.2, "blue": 0}
