"""Compare Florence-2, TrOCR and Donut with what the library's documentation does beyond `generate`."""

from typing import Any

import pytest

from app.core.settings.model import ModelSource
from app.plugins.transformers.torch.architecture import read_model_spec
from app.plugins.transformers.torch.heads.image_text_to_text import load_vision_language_model
from app.plugins.transformers.torch.network import load_network
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.inference.limits import Limits
from tasks.vision.image import Image
from tests.plugins.transformers.torch.asking import FolderOf, Served, answers, image_input, pil_image, scene
from tests.support.data.library_answers import LibraryModel
from tests.support.data.requests import request
from tests.support.rejection import rejects

# The PaliGemma processor of transformers 5.23 passes torch tensors to NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TOWERS = [
    ("llava", "model.vision_tower", 1), ("idefics3", "model.vision_model", 1), ("smolvlm", "model.vision_model", 1),
    ("qwen2_vl", "model.visual", 1), ("paligemma", "model.vision_tower", 1), ("florence2", "model.vision_tower", 1),
    ("trocr", "encoder", 1), ("donut", "encoder", 1),
    # Their `generate` accepts pixels only.
    ("blip", "vision_model", 3), ("git", "git.image_encoder", 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tower", "calls"), TOWERS)
def test_vision_tower_runs_once_for_several_prompts_if_generate_accepts_features(
    folder_of: FolderOf, name: str, tower: str, calls: int
) -> None:
    spec = read_model_spec(ModelSource(name=name, version="1", folder=folder_of(name)))
    network = load_network(spec)
    count = 0

    def add(module: Any, arguments: Any) -> None:
        nonlocal count
        count += 1

    network.module.get_submodule(tower).register_forward_pre_hook(add)
    model = load_vision_language_model(spec, network)
    parameters = GenerationParameters(max_new_tokens=3)
    model([PromptedImage((Image(scene()),), ("what?", "who?", "where?"), parameters)])
    assert count == calls


def test_florence_answers_task_prompts_with_locations(folder_of: FolderOf, served: Served) -> None:
    library, pixels = LibraryModel(folder_of("florence2")), scene(80, 48)
    prompts = ["<CAPTION>", "<OD>", "<REGION_TO_CATEGORY><loc_3><loc_4><loc_9><loc_12>"]
    encoded = [library.inputs([pixels], prompt) for prompt in prompts]
    (found,) = answers(served("florence2"), image_input(pixels, prompts=prompts, max_new_tokens=30))
    sequences = [library.generate(dict(inputs), 30) for inputs in encoded]
    assert [record.answer for record in found] == [
        library.text(inputs, sequence) for inputs, sequence in zip(encoded, sequences, strict=True)
    ]
    assert "<loc_" in found[1].answer


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [("<OCR> here", "processor rejects .*Task token <OCR>"), ("a<s>", "control"), ("a<eos>", "control")],
)
def test_florence_rejects_unusable_prompt(served: Served, prompt: str, reason: str) -> None:
    with rejects(reason, "inputs[0].parameters.prompts[1]"):
        answers(served("florence2"), image_input(scene(), prompts=["fine", prompt]))


def test_donut_uses_task_prompt_unchanged(served: Served) -> None:
    prompts = ["who?", "<s_docvqa><s_question>who?</s_question><s_answer>", "<s_docvqa>"]
    (found,) = answers(served("donut"), image_input(scene(), prompts=prompts, max_new_tokens=12))
    texts = [record.answer for record in found]
    assert texts[0] == texts[1] != texts[2]


def test_donut_without_questions_starts_with_its_start_token(folder_of: FolderOf, served: Served) -> None:
    library, pixels = LibraryModel(folder_of("donut_receipts")), scene(80, 48)
    tensor = image_input(pixels, prompts=["<s_receipt>", "who?"], max_new_tokens=12)
    (found,) = answers(served("donut_receipts"), tensor)
    unknown = [[library.tokenizer.unk_token_id]]
    inputs = {**library.processor(pil_image(pixels), return_tensors="pt"), "bad_words_ids": unknown}
    ids = library.tokenizer("<s_receipt>", add_special_tokens=False, return_tensors="pt").input_ids
    for record, prompt in zip(found, ({"decoder_input_ids": ids}, {}), strict=True):
        text = library.tokenizer.decode(library.generate({**inputs, **prompt}, 12))
        assert record.answer == text.removeprefix("<eos>").removeprefix("<s_receipt>")


def test_text_is_not_stripped(served: Served) -> None:
    tensor = image_input(scene(), max_new_tokens=6)
    ((found,),) = answers(served("trocr"), tensor)
    assert found.answer.startswith(" ")
    assert "".join(chunk.text for chunk in served("trocr").stream(request(tensor), Limits())) == found.answer


def test_answer_ends_at_the_decoder_s_last_position(served: Served) -> None:
    tensor = image_input(scene(), max_new_tokens=200)
    *_, last = served("trocr").stream(request(tensor), Limits())
    assert last.usage is not None
    assert last.usage.completion == 127
