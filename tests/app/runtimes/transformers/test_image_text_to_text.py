"""Against the library's own processors and `generate`."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.engine.servable import Servable
from app.runtimes.transformers import TransformersRuntime
from app.runtimes.transformers.architecture import understand
from app.runtimes.transformers.image_text_to_text import load_vision_language_model
from app.runtimes.transformers.network import load_network
from app.runtimes.transformers.processing import load_processor
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.vision.image import Image
from tests.app.runtimes.transformers.asking import answers, image_input, picture, request, scene
from tests.support import tiny

pytestmark = [
    pytest.mark.slow,
    # transformers 5.23 hands torch's tensors to NumPy 2 in the processor of PaliGemma.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

TEMPLATED = ["llava", "idefics3", "smolvlm", "qwen2_vl"]
FAMILIES = [*TEMPLATED, "blip", "blip_vqa", "git", "paligemma"]
PROMPT = "what is in the picture?"


def processor_of(folder: Path, model_type: str) -> Any:
    return load_processor(ModelSource(name="m", version="1", folder=folder), model_type)


def continued(folder: Path, inputs: Any, tokens: int) -> str:
    """What the library's own model says, without the prompt."""
    t = tiny.transformers()
    kind = "AutoModelForImageTextToText"
    model = getattr(t, kind).from_pretrained(folder).eval()
    made = model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.decode(inputs["input_ids"][0], skip_special_tokens=True)
    answer = tokenizer.decode(made[0], skip_special_tokens=True)
    assert answer.startswith(prompt)
    return answer.removeprefix(prompt)


@pytest.mark.parametrize("name", TEMPLATED)
def test_a_chat_model_answers_what_it_generates(
    folder_of: Callable[[str], Path], served: Callable[..., Servable], name: str
) -> None:
    pixels = scene(80, 48)
    processor = processor_of(folder_of(name), name)
    content = [{"type": "image", "image": picture(pixels)}, {"type": "text", "text": PROMPT}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True, return_dict=True,
        return_tensors="pt",
    )  # fmt: skip
    expected = continued(folder_of(name), inputs, 12)
    (found,) = answers(served(name), image_input(pixels, prompts=[PROMPT, "who?"], max_new_tokens=12))
    assert [each.prompt for each in found] == [PROMPT, "who?"]
    assert found[0].answer == expected.strip() != ""


@pytest.mark.parametrize("name", ["blip", "git", "paligemma"])
def test_a_model_without_a_template_is_asked_as_it_was_trained(
    folder_of: Callable[[str], Path], served: Callable[..., Servable], name: str
) -> None:
    pixels = scene(80, 48)
    processor = tiny.transformers().AutoProcessor.from_pretrained(folder_of(name))
    text = f"<image>{PROMPT}" if name == "paligemma" else PROMPT
    inputs = dict(processor(images=picture(pixels), text=text, return_tensors="pt"))
    if name != "paligemma":
        inputs.pop("token_type_ids", None)
    if name == "git":
        # "[CLS] question", without the "[SEP]" that ends a text (documentation of GIT, visual question answering).
        inputs = {key: value[:, :-1] if key != "pixel_values" else value for key, value in inputs.items()}
    expected = continued(folder_of(name), inputs, 8)
    ((found,),) = answers(served(name), image_input(pixels, prompts=[PROMPT], max_new_tokens=8))
    assert found.answer == expected.strip() != ""


def test_an_answer_of_visual_question_answering_does_not_begin_with_the_question(
    folder_of: Callable[[str], Path], served: Callable[..., Servable]
) -> None:
    pixels = scene(80, 48)
    t = tiny.transformers()
    processor = t.AutoProcessor.from_pretrained(folder_of("blip_vqa"))
    inputs = dict(processor(images=picture(pixels), text=PROMPT, return_tensors="pt"))
    inputs.pop("token_type_ids", None)
    model = t.AutoModelForVisualQuestionAnswering.from_pretrained(folder_of("blip_vqa")).eval()
    made = model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
    ((found,),) = answers(served("blip_vqa"), image_input(pixels, prompts=[PROMPT], max_new_tokens=8))
    assert found.answer == processor.decode(made[0], skip_special_tokens=True).strip() != ""


def test_a_picture_has_as_many_tokens_as_its_size_asks_for(folder_of: Callable[[str], Path]) -> None:
    processor = processor_of(folder_of("qwen2_vl"), "qwen2_vl")
    text = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}]}], add_generation_prompt=True, tokenize=False
    )
    made = processor(images=[picture(scene(64, 32))], text=[text], return_tensors="pt")
    assert made["image_grid_thw"].tolist() == [[1, 4, 8]]
    image_id = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert (made["input_ids"] == image_id).sum() == 4 * 8 // 2**2


@pytest.mark.parametrize("name", FAMILIES)
def test_the_pieces_of_a_stream_are_the_answers_to_each_question(served: Callable[..., Servable], name: str) -> None:
    """Several questions about several pictures are answered as each is alone, and streamed as they are answered."""
    pictures, prompts = [scene(), scene(40, 40, 3)], ["what?", "who is in the red picture?"]
    sampled = {"max_new_tokens": 10, "temperature": 1.5, "top_k": 20, "seed": 5}
    asked = image_input(*pictures, prompts=prompts, **sampled)
    found = [[each.answer for each in records] for records in answers(served(name), asked)]
    assert found == [
        [answers(served(name), image_input(each, prompts=[prompt], **sampled))[0][0].answer for prompt in prompts]
        for each in pictures
    ]
    pieces = list(served(name).stream(request(asked), Limits()))
    told = [
        ["".join(each.text for each in pieces if (each.item, each.prompt) == (item, prompt)) for prompt in range(2)]
        for item in range(2)
    ]
    assert told == found
    assert [(each.item, each.prompt) for each in pieces if each.final] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("name", FAMILIES)
def test_sampling_is_repeatable_by_its_seed(served: Callable[..., Servable], name: str) -> None:
    def said(seed: int, **more: object) -> str:
        sampled = {"max_new_tokens": 12, "temperature": 3.0, "seed": seed, **more}
        return answers(served(name), image_input(scene(), prompts=["what?"], **sampled))[0][0].answer

    assert said(1) == said(1)
    assert len({said(seed) for seed in range(4)}) > 1
    assert said(1, top_k=1) == said(2, temperature=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_reader_that_leaves_stops_the_model(folder_of: Callable[[str], Path], name: str) -> None:
    known = understand(ModelSource(name=name, version="1", folder=folder_of(name)))
    network = load_network(known)
    steps = 0

    def count(module: Any, given: Any) -> None:
        nonlocal steps
        steps += 1

    getattr(network.module, "text_decoder", network.module).register_forward_pre_hook(count)
    parameters = GenerationParameters(max_new_tokens=40, temperature=3.0, seed=1)
    asked = PromptedImage(Image(scene()), ("what?", "who?"), parameters)
    pieces = load_vision_language_model(known, network).stream([asked])
    next(pieces)
    assert [each.name for each in threading.enumerate()].count("generate") == 1
    pieces.close()
    assert [each.name for each in threading.enumerate()].count("generate") == 0
    assert 0 < steps < 10


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (" ", "empty"), ("a <image> b", "control tokens"), ("stop <eos>", "control tokens"), ("\ud800", "surrogate"),
        ("x" * 300, "leaves room"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_put_is_refused(served: Callable[..., Servable], prompt: str, reason: str) -> None:
    with pytest.raises(InferenceError, match=reason) as caught:
        answers(served("llava"), image_input(scene(), prompts=["fine", prompt]))
    assert (caught.value.kind, caught.value.path) == (
        ErrorKind.INVALID_REQUEST,
        "inputs[0].parameters.prompts[1]",
    )


@pytest.fixture
def templated(folder_of: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Servable]:
    """The LLaVA model with another chat template."""

    def made(template: str) -> Servable:
        folder = tmp_path / "llava"
        shutil.copytree(folder_of("llava"), folder)
        (folder / "chat_template.jinja").write_text(template)
        return TransformersRuntime().load(ModelSource(name="m", version="1", folder=folder))

    return made


def test_a_template_of_a_text_model_takes_the_message_as_one_text(templated: Callable[[str], Servable]) -> None:
    template = (
        "{% for each in messages %}{% if each.content is not string %}{{ raise_exception('no text') }}{% endif %}"
        "{% if 'rude' in each.content %}{{ raise_exception('be polite') }}{% endif %}"
        "{{ each.role }}: {{ each.content }} {% endfor %}assistant: "
    )
    servable = templated(template)
    ((found,),) = answers(servable, image_input(scene(), prompts=["what?"], max_new_tokens=4))
    assert found.answer
    with pytest.raises(InferenceError, match="chat template rejects the text: be polite") as caught:
        answers(servable, image_input(scene(), prompts=["rude"]))
    assert caught.value.path == "inputs[0].parameters.prompts[0]"


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content[1].text }}", "<image> hello", "{{ raise_exception('never') }}", "{% if %}"]
)
def test_a_template_that_cannot_ask_about_a_picture_is_explained(
    templated: Callable[[str], Servable], template: str
) -> None:
    with pytest.raises(ModelError, match="does not accept one image and one question"):
        templated(template)
