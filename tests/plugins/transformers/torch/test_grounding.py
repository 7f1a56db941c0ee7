"""Answer with places, as text with boxes and as a detector. A stand-in for `generate` prints known texts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.runtimes import TRANSFORMERS
from app.plugins.transformers.text.detector import bind_task
from app.plugins.transformers.torch.architecture import read_model_spec
from app.plugins.transformers.torch.heads.image_text_to_text import load_vision_language_model
from app.plugins.transformers.torch.network import load_network
from metadata.model import Fact
from tasks.image_text_to_text import Answer
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor
from tasks.task import TaskType
from tests.plugins.transformers.torch.asking import FolderOf, answers, boxes_of, image_input, scene
from tests.support.data.requests import predict, request
from tests.support.models import tiny_models
from tests.support.rejection import rejects

PROBABILITIES = (0.9, 0.7)
"""Of the printed tokens, in turns."""
QWEN2 = "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(100,250),(500,1000)<|box_end|>"
QWEN3 = '[{"bbox_2d": [100, 250, 500, 1000], "label": "Cat"}, {"bbox_2d": [0, 0, 500, 500], "label": "cow"}]'
BOX = (8.0, 12.0, 40.0, 48.0)
"""The first box of both, in an image of 80 x 48 pixels."""


def source(folder: Path, **settings: Any) -> ModelSource:
    return ModelSource(name="m", version="1", folder=folder, settings=registry().model_settings(**settings))


def scripted(model: ModelSource, texts: Mapping[str, str]) -> tuple[Servable, list[str]]:
    """Return the model with a `generate` that prints the text whose key is in the question, and the questions."""
    torch, spec = tiny_models.torch(), read_model_spec(model)
    network = load_network(spec)
    loaded = load_vision_language_model(spec, network)
    tokenizer: Any = tiny_models.transformers().AutoTokenizer.from_pretrained(model.folder)
    questions: list[str] = []

    def generate(*, input_ids: Any, logits_processor: Sequence[Callable[..., Any]], **options: Any) -> None:
        questions.append(tokenizer.decode(input_ids[0], skip_special_tokens=True))
        (text,) = [text for key, text in texts.items() if key in questions[-1]]
        ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        for step, id_ in enumerate(ids[: options["max_new_tokens"]]):
            probability = PROBABILITIES[step % 2]
            scores = torch.full((1, len(tokenizer)), np.log((1 - probability) / (len(tokenizer) - 1)))
            scores[0, id_] = np.log(probability)
            logits_processor[0](input_ids, scores)

    network.module.generate = generate
    task, bound = bind_task(loaded, loaded.form, spec.description.task_type, list[Fact]())
    return Servable(task, bound, spec.description, model.settings.parameters), questions


def question(**parameters: Any) -> BytesTensor:
    return image_input(scene(80, 48), **parameters)


def test_answer_keeps_its_text_and_has_boxes_beside_it(folder_of: FolderOf) -> None:
    servable, _ = scripted(source(folder_of("qwen2_vl")), {"cat": QWEN2, "prose": "It is red."})
    tensor = question(prompts=["the cat?", "prose?"], max_new_tokens=400)
    ((found, prose),) = answers(servable, tensor)
    # Tags are special tokens, which texts leave out.
    assert found.answer == "cat(100,250),(500,1000)"
    assert boxes_of(found.grounding.objects).tolist() == [list(BOX)]
    assert found.grounding.objects[0].label == "cat"
    assert found.grounding.objects[0].score == pytest.approx(0.8, abs=0.01)
    assert prose == Answer("prose?", "It is red.")
    chunks = [chunk for chunk in servable.stream(request(tensor), Limits()) if chunk.final]
    assert [chunk.grounding for chunk in chunks] == [found.grounding, None]
    (prediction,) = predict(servable, tensor)
    tensors = {one.name: one.data.tolist() for one in prediction.stack([prediction])}
    assert [spec.name for spec in servable.outputs] == list(tensors)
    assert b'"xmin":8.0' in tensors["grounding"][0][0]
    ((cut, _),) = answers(servable, question(prompts=["the cat?", "prose?"], max_new_tokens=400, stop=["(500"]))
    assert cut.answer == "cat(100,250),"
    assert not hasattr(cut, "grounding")


def test_coordinates_of_several_images_give_a_note(folder_of: FolderOf) -> None:
    servable, _ = scripted(source(folder_of("qwen2_vl")), {"cat": QWEN2})
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "the cat?"}]
    messages = [{"role": "user", "content": content}]
    ((found,),) = answers(servable, image_input(scene(), scene(), messages=messages, max_new_tokens=400))
    assert (found.grounding.objects, found.grounding.note) == ([], "1 printed place could not be read")


def test_pixels_of_resized_input_become_pixels_of_image(folder_of: FolderOf) -> None:
    t = tiny_models.transformers()
    resize = t.models.qwen2_vl.image_processing_pil_qwen2_vl.smart_resize
    height, width = resize(100, 333, factor=16, min_pixels=256, max_pixels=4096)
    text = f'[{{"bbox_2d": [{width // 2}, 0, {width}, {height}], "label": "a"}}]'
    servable, _ = scripted(source(folder_of("qwen2_vl"), grounding="qwen2_5_vl"), {"cat": text})
    ((found,),) = answers(servable, image_input(scene(333, 100), prompts=["cat"], max_new_tokens=400))
    assert boxes_of(found.grounding.objects) == pytest.approx(np.array([[333 / 2, 0, 333, 100]]))
    assert (width, height) != (333, 100)


DETECTION = TaskType.OBJECT_DETECTION
INVALID = ErrorKind.INVALID_REQUEST


def test_detector_returns_boxes_of_candidate_labels(folder_of: FolderOf) -> None:
    settings = {"task_type": DETECTION, "grounding": "qwen3_vl"}
    servable, questions = scripted(source(folder_of("qwen2_vl"), **settings), {"": QWEN3})
    assert servable.description.open_vocabulary
    (found,) = answers(servable, question(candidate_labels=["cat", "dog"]))
    assert [record.label for record in found] == ["cat"]
    assert boxes_of(found).tolist() == [list(BOX)]
    assert found[0].score == pytest.approx(0.8, abs=0.01)
    assert 'categories: "cat, dog"' in questions[0]
    assert answers(servable, question(candidate_labels=["cat", "dog"], score_threshold=0.85)) == [[]]
    (found,) = answers(servable, question(prompt="Where are all things?"))
    assert [record.label for record in found] == ["Cat", "cow"]
    assert "Where are all things?" in questions[-1]
    # Too short for a box.
    assert answers(servable, question(candidate_labels=["cat"], max_new_tokens=5)) == [[]]


def test_detector_asks_for_one_class_after_the_other(folder_of: FolderOf) -> None:
    texts = {"the cat?": QWEN2.replace("cat", "a black one"), "the dog?": QWEN2.replace("cat", "")}
    servable, questions = scripted(source(folder_of("qwen2_vl"), task_type=DETECTION), texts)
    (found,) = answers(servable, question(candidate_labels=["cat", "dog"], prompt="Where is the {label}?"))
    assert [record.label for record in found] == ["cat", "dog"]
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("parameters", "reason", "path", "kind"),
    [
        ({}, "Expected the names of the classes", "inputs[0].parameters.candidate_labels", INVALID),
        ({"prompt": "x" * 300_000}, "at most 200,000", "inputs[0].parameters.prompt", ErrorKind.TOO_LARGE),
        ({"prompt": "?", "max_new_tokens": 2000}, "1024", "inputs[0].parameters.max_new_tokens", ErrorKind.TOO_LARGE),
        ({"prompt": " "}, "got an empty text", "parameters.prompt[0]", INVALID),
        ({"candidate_labels": ["a<eos>"]}, "control tokens", "parameters.candidate_labels[0]", INVALID),
    ],
)
def test_unusable_question_of_detector_is_rejected(
    folder_of: FolderOf, parameters: dict[str, Any], reason: str, path: str, kind: ErrorKind
) -> None:
    servable, _ = scripted(source(folder_of("qwen2_vl"), task_type=DETECTION), {"": QWEN2})
    with rejects(reason, path, kind):
        answers(servable, question(**parameters))


def test_florence_segments_and_detects(folder_of: FolderOf) -> None:
    polygon = "<loc_0><loc_0><loc_19><loc_0><loc_19><loc_19>"
    settings = {"parameters": {"max_new_tokens": 400}}
    servable, questions = scripted(
        source(folder_of("florence2"), task_type=TaskType.IMAGE_SEGMENTATION, **settings), {"": polygon}
    )
    (found,) = answers(servable, image_input(scene(1000, 500), candidate_labels=["cat"]))
    assert [(record.label, len(record.contour)) for record in found] == [("cat", 1)]
    points = [(point.x, point.y) for point in found[0].contour[0]]
    assert np.array(points) == pytest.approx(np.array([(0, -0.25), (19, -0.25), (19, 9.25)]))
    assert questions == ["Locate cat in the image with mask"]
    servable, _ = scripted(source(folder_of("florence2"), task_type=DETECTION), {"": f"a cat<poly>{polygon}</poly>"})
    (found,) = answers(servable, image_input(scene(1000, 500), candidate_labels=["cat"]))
    assert boxes_of(found) == pytest.approx(np.array([[0.5, 0.25, 19.5, 9.75]]))


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "florence2", "paligemma"])
def test_random_weights_of_each_family_load_as_detector(folder_of: FolderOf, name: str) -> None:
    servable = TRANSFORMERS.load(source(folder_of(name), task_type=DETECTION))
    assert {fact.topic: fact.value for fact in servable.description.facts}["grounding"] == name
    (found,) = answers(servable, image_input(scene(), candidate_labels=["cat"], max_new_tokens=20))
    assert [record.label for record in found if record.label != "cat"] == []


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("llava", {"task_type": DETECTION}, 'declare "grounding"'),
        ("qwen2_vl", {"task_type": DETECTION, "grounding": "none"}, 'declare "grounding"'),
        ("qwen2_vl", {"task_type": TaskType.IMAGE_SEGMENTATION}, "prints boxes, not outlines"),
    ],
)
def test_model_that_prints_no_places_is_no_detector(
    folder_of: FolderOf, name: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        TRANSFORMERS.inspect(source(folder_of(name), **settings))


def test_declared_none_answers_with_text_only(folder_of: FolderOf) -> None:
    servable, _ = scripted(source(folder_of("qwen2_vl"), grounding="none"), {"": QWEN2})
    ((found,),) = answers(servable, question(max_new_tokens=400))
    assert not hasattr(found, "grounding")
    assert [spec.name for spec in servable.outputs] == ["num_prompts", "prompts", "answers"]
