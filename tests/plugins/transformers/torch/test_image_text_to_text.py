"""Compare answers with the processors and `generate` of transformers."""

import threading
from typing import Any

import pytest

from app.core.settings.model import ModelSource
from app.plugins.transformers.torch.architecture import read_model_spec
from app.plugins.transformers.torch.heads.image_text_to_text import (
    TransformersVisionLanguageModel,
    load_vision_language_model,
)
from app.plugins.transformers.torch.network import load_network
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.inference.limits import Limits
from tasks.vision.image import Image
from tests.plugins.transformers.torch.asking import (
    FolderOf,
    Served,
    answers,
    image_input,
    pil_image,
    scene,
)
from tests.support.data.library_answers import LibraryModel
from tests.support.data.requests import request
from tests.support.rejection import rejects

# The PaliGemma processor of transformers 5.23 passes torch tensors to NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TEMPLATED = ["llava", "idefics3", "smolvlm", "qwen2_vl"]
FAMILIES = [*TEMPLATED, "blip", "blip_vqa", "git", "paligemma", "florence2", "trocr", "donut"]
KINDS = ["llava", "blip", "trocr"]
"""A decoder alone, a decoder that reads the image, and one behind an encoder."""
PROMPT = "what is in the picture?"


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_of_two_images_and_prompts_equal_generate(folder_of: FolderOf, served: Served, name: str) -> None:
    library, servable = LibraryModel(folder_of(name)), served(name)
    images, prompts = [scene(80, 48), scene(40, 40, seed=1)], [PROMPT, "who?"]
    encoded = [library.inputs([pixels], prompt) for pixels in images for prompt in prompts]
    expected = [library.generate(dict(inputs), 12) for inputs in encoded]
    texts = [library.text(inputs, sequence) for inputs, sequence in zip(encoded, expected, strict=True)]
    with library.recorded() as sequences:
        found = answers(servable, image_input(*images, prompts=prompts, max_new_tokens=12))
    assert sequences == expected
    assert [record.answer for records in found for record in records] == texts
    assert len(set(texts)) > 1


@pytest.mark.parametrize("name", TEMPLATED)
@pytest.mark.parametrize("count", [0, 2])
def test_conversation_with_images_equals_generate(folder_of: FolderOf, served: Served, name: str, count: int) -> None:
    images, text = [scene(80, 48), scene(64, 64, seed=1)][:count], {"type": "text", "text": PROMPT}
    questions = [{"role": "user", "content": [{"type": "image"}, text]} for _ in images]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "a dog"}]}
    messages = [questions[0], answer, questions[1]] if images else [{"role": "user", "content": [text]}]
    library = LibraryModel(folder_of(name))
    rendered = library.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    files = [pil_image(pixels) for pixels in images] or None
    inputs = library.processor(text=[rendered], images=files, return_tensors="pt")
    expected = library.text(inputs, library.generate(dict(inputs), 12))
    tensor = image_input(*images, messages=messages, max_new_tokens=12)
    ((found,),) = answers(served(name), tensor)
    assert (found.prompt, found.answer) == (PROMPT, expected)
    *_, last = served(name).stream(request(tensor), Limits())
    assert last.usage is not None
    assert last.usage.prompt == inputs["input_ids"].shape[1]


@pytest.mark.parametrize("name", ["blip", "blip_vqa", "git", "paligemma", "florence2", "trocr"])
def test_model_without_template_rejects_conversations(served: Served, name: str) -> None:
    text = {"type": "text", "text": PROMPT}
    with rejects("answers no question without one", "inputs[0].parameters.messages"):
        answers(served(name), image_input(messages=[{"role": "user", "content": [text]}]))
    messages = [{"role": "user", "content": [{"type": "image"}, text]}] * 2
    with rejects("no chat template for a conversation", "inputs[0].parameters.messages"):
        answers(served(name), image_input(scene(), scene(), messages=messages))


@pytest.mark.parametrize("name", KINDS)
def test_closed_stream_stops_generation(folder_of: FolderOf, name: str) -> None:
    known = read_model_spec(ModelSource(name=name, version="1", folder=folder_of(name)))
    network = load_network(known)
    steps = 0

    def count(module: Any, arguments: Any) -> None:
        nonlocal steps
        steps += 1

    getattr(network.module, "text_decoder", network.module).register_forward_pre_hook(count)
    parameters = GenerationParameters(max_new_tokens=40, temperature=3.0, seed=1)
    item = PromptedImage((Image(scene()),), ("what?", "who?"), parameters)
    model = load_vision_language_model(known, network)
    assert isinstance(model, TransformersVisionLanguageModel)
    chunks = model.stream([item])
    next(chunks)
    assert [thread.name for thread in threading.enumerate()].count("generate") == 1
    chunks.close()
    assert [thread.name for thread in threading.enumerate()].count("generate") == 0
    assert 0 < steps < 10
