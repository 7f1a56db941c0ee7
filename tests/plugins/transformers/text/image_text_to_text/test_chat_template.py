"""Test what prompts become with the model's chat template, or without one."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, processors

from app.core.settings.model import ModelError
from app.plugins.transformers.text.image_text_to_text.assembly import assemble
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.inference.error import InferenceError
from tasks.text.generation import question
from tests.plugins.transformers.text.image_text_to_text import tiny
from tests.support.rejection import rejects

FEATURES = (1, 2, 3, 4)


def answer(model: Any, prompt: str) -> str:
    [answers] = model([tiny.prompted_image(tiny.image_with_features(*FEATURES), prompt, max_new_tokens=4)])
    return answers.answers[0]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (None, "<image> what is"),
        ("user: {{ messages[0]['content'] }} assistant:", "user: <image> what is assistant:"),
        ("{{ bos_token }} {{ '<image>' }} {{ messages[0].content[1].text }}", "<begin> <image> what is"),
    ],
)
def test_template_decides_the_tokens(folder: Path, template: str | None, text: str) -> None:
    path = folder / "chat_template.jinja"
    path.unlink() if template is None else path.write_text(template)
    model, description = assemble(tiny.source(folder))
    assert answer(model, "what is") == tiny.continued(text, [FEATURES], 4)
    facts = [fact.value for fact in description.facts]
    assert ("none: <image>, line break, prompt" in facts) is (template is None)


@pytest.mark.parametrize("template_has_bos", [True, False])
def test_bos_token_is_added_once(folder: Path, template_has_bos: bool) -> None:
    tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = tiny.VOCABULARY.index("<begin>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", begin)])
    tokenizer.save(str(folder / "tokenizer.json"))
    if template_has_bos:
        (folder / "chat_template.jinja").write_text("{{ bos_token }} " + tiny.TEMPLATE)
    expected = tiny.continued("<begin> user: <image> what assistant:", [FEATURES], 4)
    assert answer(assemble(tiny.source(folder))[0], "what") == expected


@pytest.mark.parametrize(
    "prompt",
    ["a \N{FULLWIDTH LESS-THAN SIGN}end\N{FULLWIDTH GREATER-THAN SIGN}", "<END>", "a\N{ZERO WIDTH SPACE}<end>"],
)
def test_control_tokens_are_found_after_normalisation(folder: Path, prompt: str) -> None:
    tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_special_tokens([tokenizers.AddedToken("<end>", special=True, normalized=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    model = assemble(tiny.source(folder))[0]
    assert answer(model, "WHAT is") == tiny.reference("what is", FEATURES, 4)
    with rejects("control tokens, got <end>"):
        answer(model, prompt)


def test_end_token_counts_as_control_token_even_if_not_special(folder: Path) -> None:
    tiny.change(folder / "generation_config.json", eos_token_id=tiny.VOCABULARY.index("w5"))
    with pytest.raises(InferenceError, match="control tokens, got w5"):
        answer(assemble(tiny.source(folder))[0], "what is w5")


@pytest.mark.parametrize(
    ("template", "reason"),
    [(None, "no chat template for a conversation"), ("<image> {{ messages[0].content[1].text }}", "rejects the image")],
)
def test_conversation_that_the_template_cannot_write_is_invalid_request(
    folder: Path, template: str | None, reason: str
) -> None:
    path = folder / "chat_template.jinja"
    path.unlink() if template is None else path.write_text(template)
    model, _ = assemble(tiny.source(folder))
    images = (tiny.image_with_features(*FEATURES),) * 2
    parameters = GenerationParameters(messages=(question("what is"), question("this")))
    with rejects(reason):
        model([PromptedImage(images, ("this",), parameters, "messages")])


def test_prompt_rejected_by_template_is_invalid_request(folder: Path) -> None:
    guard = "{% if 'red' in messages[0].content[1].text %}{{ raise_exception('nothing red') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(guard + tiny.TEMPLATE)
    with rejects("chat template rejects the text: nothing red", "prompts[0]"):
        answer(assemble(tiny.source(folder))[0], "what is red")


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages[0]['content'][1]['text'] }}",
        "<image> <image> {{ messages[0]['content'][1]['text'] }}",
    ],
)
def test_template_without_one_image_and_one_question_is_rejected(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match="The chat template does not accept one image and one question"):
        assemble(tiny.source(folder))
