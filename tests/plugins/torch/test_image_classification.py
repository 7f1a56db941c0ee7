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


def test_action_predict_returns_only_best_class(served: Served) -> None:
    (records,) = answers(served("vit"), image_input(scene()))
    assert answers(served("vit"), image_input(scene(), action="predict")) == [records[:1]]


def test_candidate_labels_are_rejected(served: Served) -> None:
    with rejects("classes of its own", "inputs[0].parameters.candidate_labels"):
        answers(served("vit"), image_input(scene(), candidate_labels=["cat"]))


@pytest.mark.parametrize(
    ("config", "logits", "expected"),
    [
        ({"problem_type": None}, [2.0, 0.0], [0.8807971, 0.1192029]),
        ({"problem_type": "single_label_classification"}, [2.0, 0.0], [0.8807971, 0.1192029]),
        ({"problem_type": "multi_label_classification"}, [2.0, 0.0], [0.8807971, 0.5]),
        ({"problem_type": "regression"}, [2.0, 0.0], [2.0, 0.0]),
        ({"num_labels": 1}, [0.0], [0.5]),
    ],
)
def test_configuration_decides_how_logits_are_read(
    config: dict[str, Any], logits: list[float], expected: list[float]
) -> None:
    read = tiny_models.transformers().PretrainedConfig(**config)
    assert np.allclose(probabilities(tiny_models.torch().tensor([logits]), read), [expected])
