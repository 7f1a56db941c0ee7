"""Compare zero-shot models with the post-processing of transformers, and run them with commands."""

import json

import numpy as np
import pytest

from app.core.settings.server import DEMO_IMAGES, ModelOptions
from app.plugins.authoring.check import check
from app.plugins.authoring.predict import predict
from app.plugins.explanations.command import explain
from tasks.inference.error import ErrorKind, InferenceError
from tests.plugins.transformers.torch.asking import (
    FolderOf,
    Served,
    answers,
    boxes_of,
    forward,
    image_input,
    model_and_processor,
    pil_image,
    scene,
)
from tests.support.models import tiny_models
from tests.support.rejection import rejects

CANDIDATE_LABELS = ["red ship", "a dog", "picture"]


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_image_classes_equal_those_of_pipeline(folder_of: FolderOf, served: Served, name: str) -> None:
    model, processor = model_and_processor(folder_of(name), "AutoModelForZeroShotImageClassification")
    tokenizer = tiny_models.transformers().AutoTokenizer.from_pretrained(folder_of(name))
    pipeline = tiny_models.transformers().pipeline(
        "zero-shot-image-classification", model=model, image_processor=processor, tokenizer=tokenizer
    )
    for pixels in (scene(), scene(50, 90, 1)):
        expected = pipeline(pil_image(pixels), candidate_labels=CANDIDATE_LABELS)
        (found,) = answers(served(name), image_input(pixels, candidate_labels=CANDIDATE_LABELS))
        assert [record.label for record in found] == [record["label"] for record in expected]
        assert [record.score for record in found] == pytest.approx([record["score"] for record in expected], abs=1e-4)


def test_boxes_of_candidate_labels_equal_those_of_processor(folder_of: FolderOf, served: Served) -> None:
    t = tiny_models.transformers()
    model = t.AutoModelForZeroShotObjectDetection.from_pretrained(folder_of("owlvit")).eval()
    processor = t.AutoProcessor.from_pretrained(folder_of("owlvit"))
    pixels = scene(120, 80)
    inputs = processor(images=pil_image(pixels), text=[CANDIDATE_LABELS], return_tensors="pt")
    outputs = forward(model, inputs)
    expected = processor.post_process_grounded_object_detection(
        outputs, threshold=0.3, target_sizes=[(80, 120)], text_labels=[CANDIDATE_LABELS]
    )[0]
    (found,) = answers(served("owlvit"), image_input(pixels, candidate_labels=CANDIDATE_LABELS, score_threshold=0.3))
    assert len(found) == len(expected["scores"]) > 0
    order = np.argsort(-expected["scores"].numpy(), kind="stable")
    assert [record.label for record in found] == [expected["text_labels"][index] for index in order]
    assert [record.score for record in found] == pytest.approx(expected["scores"].numpy()[order].tolist(), abs=1e-4)
    assert np.abs(boxes_of(found) - expected["boxes"].numpy()[order].clip(0, [120, 80, 120, 80])).max() < 1e-2


def test_grounding_assigns_class_of_best_word(folder_of: FolderOf, served: Served) -> None:
    t = tiny_models.transformers()
    model = t.AutoModelForZeroShotObjectDetection.from_pretrained(folder_of("grounding_dino")).eval()
    processor = t.AutoProcessor.from_pretrained(folder_of("grounding_dino"))
    pixels = scene(120, 80)
    inputs = processor(images=pil_image(pixels), text="red ship. a dog. picture.", return_tensors="pt")
    words = processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    assert words == ["[CLS]", "red", "ship", ".", "a", "dog", ".", "picture", ".", "[SEP]"]
    outputs = forward(model, inputs)
    scores = outputs.logits[0].sigmoid().numpy()
    by_class = np.stack([scores[:, 1:3].max(1), scores[:, 4:6].max(1), scores[:, 7]], axis=1)
    expected = processor.post_process_grounded_object_detection(outputs, inputs["input_ids"], -1, 2, [(80, 120)])[0]
    order = np.argsort(-by_class.max(1), kind="stable")
    labels = ["Red ship", "a dog.", "picture"]
    (found,) = answers(served("grounding_dino"), image_input(pixels, candidate_labels=labels, score_threshold=0.0))
    assert len(found) == 10
    assert [record.label for record in found] == [labels[by_class[index].argmax()] for index in order]
    assert [record.score for record in found] == pytest.approx(by_class.max(1)[order].tolist(), abs=1e-4)
    assert np.abs(boxes_of(found) - expected["boxes"].numpy()[order].clip(0, [120, 80, 120, 80])).max() < 1e-2


@pytest.mark.parametrize("name", ["clip", "owlvit"])
def test_missing_candidate_labels_are_rejected(served: Served, name: str) -> None:
    with rejects("Expected the names of the classes", "inputs[0].parameters.candidate_labels"):
        answers(served(name), image_input(scene()))


@pytest.mark.parametrize("name", ["clip", "siglip", "owlvit", "grounding_dino"])
@pytest.mark.parametrize("label", ["{0}{}", "...", "a.b.c", "\N{DOG}", "[SEP]", "x" * 256])
def test_candidate_label_may_be_any_text(served: Served, name: str, label: str) -> None:
    (found,) = answers(served(name), image_input(scene(), candidate_labels=["cat", label], score_threshold=0.0))
    assert {record.label for record in found} <= {"cat", label}
    assert found


@pytest.mark.parametrize(
    ("name", "labels", "kind", "path"),
    [
        ("clip", ["cat", "dog " * 60], ErrorKind.TOO_LARGE, "parameters.candidate_labels[1]"),
        ("grounding_dino", ["dog"] * 40, ErrorKind.TOO_LARGE, "parameters.candidate_labels"),
        ("grounding_dino", ["cat", "\u200b"], ErrorKind.INVALID_REQUEST, "parameters.candidate_labels[1]"),
        ("clip", ["cat", "\ud800"], ErrorKind.INVALID_REQUEST, "inputs[0].parameters.candidate_labels[1]"),
    ],
)
def test_unreadable_candidate_label_is_named_in_error(
    served: Served, name: str, labels: list[str], kind: ErrorKind, path: str
) -> None:
    with rejects(path=path, kind=kind):
        answers(served(name), image_input(scene(), candidate_labels=labels))


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
    predict(DEMO_IMAGES / "scene.jpg", candidate_labels=CANDIDATE_LABELS, json=True, options=options)
    found = json.loads(capsys.readouterr().out)
    assert {record["label"] for record in found} <= set(CANDIDATE_LABELS)
    explain(DEMO_IMAGES / "scene.jpg", candidate_labels=CANDIDATE_LABELS, samples=8, options=options)
    printed = capsys.readouterr().out
    assert "8 samples (rise)" in " ".join(printed.split())
    assert found[0]["label"] in printed


def test_predict_without_candidate_labels_names_them(folder_of: FolderOf) -> None:
    with pytest.raises(InferenceError, match="--candidate-labels"):
        predict(DEMO_IMAGES / "scene.jpg", options=ModelOptions(model=folder_of("clip")))
