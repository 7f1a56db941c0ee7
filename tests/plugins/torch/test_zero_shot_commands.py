"""Run zero-shot models with the commands that try a model."""

import json

import pytest

from app.core.settings.server import DEMO_IMAGES, ModelOptions
from app.plugins.authoring.check import check
from app.plugins.authoring.predict import predict
from app.plugins.explanations.command import explain
from tasks.inference.error import InferenceError
from tests.plugins.torch.asking import FolderOf

pytestmark = pytest.mark.slow

IMAGE = DEMO_IMAGES / "scene.jpg"
NAMES = ["a dog", "picture"]


@pytest.mark.parametrize("name", ["clip", "owlvit"])
def test_check_tries_zero_shot_model_with_candidate_labels(
    folder_of: FolderOf, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    check(folder_of(name))
    assert "Tried on one image with the candidate labels red square, blue circle" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["clip", "owlvit"])
def test_predict_and_explain_take_candidate_labels(
    folder_of: FolderOf, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options = ModelOptions(model=folder_of(name))
    predict(IMAGE, candidate_labels=NAMES, json=True, options=options)
    found = json.loads(capsys.readouterr().out)
    assert {record["label"] for record in found} <= set(NAMES)
    explain(IMAGE, candidate_labels=NAMES, samples=8, json=True, options=options)
    explained = json.loads(capsys.readouterr().out)
    assert explained[0]["label"] == found[0]["label"]


def test_predict_without_candidate_labels_names_them(folder_of: FolderOf) -> None:
    with pytest.raises(InferenceError, match="candidate_labels"):
        predict(IMAGE, options=ModelOptions(model=folder_of("clip")))
