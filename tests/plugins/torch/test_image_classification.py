"""Compare image classification with the pipeline of transformers."""

from typing import Any

import numpy as np
import pytest

from app.plugins.torch.heads.classification import probabilities
from tests.plugins.torch.asking import FolderOf, Served, answers, image_input, model_and_processor, pil_image, scene
from tests.support.models import tiny_models
from tests.support.rejection import rejects

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_answers_equal_those_of_pipeline(folder_of: FolderOf, served: Served, name: str) -> None:
    model, processor = model_and_processor(folder_of(name), "AutoModelForImageClassification")
    pipeline = tiny_models.transformers().pipeline("image-classification", model=model, image_processor=processor)
    for pixels in (scene(), scene(40, 200, 1), scene(32, 32, 2)):
        expected: list[Any] = pipeline(pil_image(pixels), top_k=3)
        (found,) = answers(served(name), image_input(pixels))
        assert [record.label for record in found] == [record["label"] for record in expected]
        assert [record.score for record in found] == pytest.approx([record["score"] for record in expected], abs=1e-4)
        assert max(record.score for record in found) < 0.999


def test_images_of_several_sizes_are_answered_in_order(served: Served) -> None:
    images = [scene(96, 64, 1), scene(50, 70, 2), scene(96, 64, 3)]
    batched = answers(served("resnet"), image_input(*images))
    alone = [answers(served("resnet"), image_input(image))[0] for image in images]
    for found, expected in zip(batched, alone, strict=True):
        assert [record.label for record in found] == [record.label for record in expected]
        assert [record.score for record in found] == pytest.approx([record.score for record in expected], abs=1e-5)


def test_action_predict_returns_only_best_class(served: Served) -> None:
    (records,) = answers(served("vit"), image_input(scene()))
    assert answers(served("vit"), image_input(scene(), action="predict")) == [records[:1]]


def test_candidate_labels_are_rejected(served: Served) -> None:
    with rejects("classes of its own", "inputs[0].parameters.candidate_labels"):
        answers(served("vit"), image_input(scene(), candidate_labels=["cat"]))


@pytest.mark.parametrize(
    ("problem_type", "expected"),
    [
        (None, [[0.8807971, 0.1192029]]),
        ("single_label_classification", [[0.8807971, 0.1192029]]),
        ("multi_label_classification", [[0.8807971, 0.5]]),
        ("regression", [[2.0, 0.0]]),
    ],
)
def test_problem_type_decides_how_logits_are_read(problem_type: str | None, expected: list[list[float]]) -> None:
    config = tiny_models.transformers().PretrainedConfig(problem_type=problem_type)
    assert np.allclose(probabilities(tiny_models.torch().tensor([[2.0, 0.0]]), config), expected)


def test_single_class_is_scored_with_sigmoid() -> None:
    config = tiny_models.transformers().PretrainedConfig(num_labels=1)
    assert np.allclose(probabilities(tiny_models.torch().tensor([[0.0]]), config), [[0.5]])
