from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, processors

from app.plugins.text.image_text_to_text.assembly import assemble
from tasks.inference.error import ErrorKind, InferenceError
from tasks.text.generation import question


def tokens(model: Any, prompt: str) -> list[str]:
    encoded = model.prompts.encode(prompt, "prompts[0]")
    before, after = encoded
    return [model.prompts.tokenizer.text_of(token_id) for token_id in (*before, model.prompts.image_id, *after)]


def read_tokenizer(folder: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    "prompt",
    ["a \N{FULLWIDTH LESS-THAN SIGN}end\N{FULLWIDTH GREATER-THAN SIGN}", "<END>", "a\N{ZERO WIDTH SPACE}<end>"],
)
def test_control_tokens_are_found_after_normalisation(tiny: Any, folder: Path, prompt: str) -> None:
    tokenizer = read_tokenizer(folder)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_special_tokens([tokenizers.AddedToken("<end>", special=True, normalized=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    model = assemble(tiny.source(folder))[0]
    assert tokens(model, "WHAT is") == ["user:", "<image>", "what", "is", "assistant:"]
    with pytest.raises(InferenceError, match="control tokens, got <end>") as caught:
        model.prompts.encode(prompt, "prompts[0]")
    assert caught.value.kind is ErrorKind.INVALID_REQUEST


def test_end_token_counts_as_control_token_even_if_not_special(tiny: Any, folder: Path) -> None:
    tiny.change(folder / "generation_config.json", eos_token_id=tiny.vocabulary.index("w5"))
    model = assemble(tiny.source(folder))[0]
    with pytest.raises(InferenceError, match="control tokens, got w5"):
        model.prompts.encode("what is w5", "prompts[0]")


@pytest.mark.parametrize("template_has_bos", [True, False])
def test_bos_token_is_added_once(tiny: Any, folder: Path, template_has_bos: bool) -> None:
    tokenizer = read_tokenizer(folder)
    begin = tiny.vocabulary.index("<begin>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", begin)])
    tokenizer.save(str(folder / "tokenizer.json"))
    if template_has_bos:
        (folder / "chat_template.jinja").write_text("{{ bos_token }} " + tiny.template)
    model = assemble(tiny.source(folder))[0]
    assert tokens(model, "what") == ["<begin>", "user:", "<image>", "what", "assistant:"]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "without a template of its own, the model takes one question about one image"),
        ("<image> {{ messages[0]['content'][-1]['text'] }}", "does not accept this order of images and messages"),
    ],
)
def test_conversation_that_the_template_cannot_write_is_invalid_request(
    tiny: Any, folder: Path, template: str | None, reason: str
) -> None:
    path = folder / "chat_template.jinja"
    path.unlink() if template is None else path.write_text(template)
    model, _ = assemble(tiny.source(folder))
    with pytest.raises(InferenceError, match=reason) as caught:
        model.prompts.encode_messages([question("what is"), question("this")], "messages")
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "messages")


def test_prompt_refused_by_template_is_invalid_request(tiny: Any, folder: Path) -> None:
    guard = "{% if 'red' in messages[0].content[1].text %}{{ raise_exception('nothing red') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(guard + tiny.template)
    model = assemble(tiny.source(folder))[0]
    with pytest.raises(InferenceError, match="chat template rejects the text: nothing red") as caught:
        model([tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), "what is red")])
    assert (caught.value.kind, caught.value.path) == (ErrorKind.INVALID_REQUEST, "prompts[0]")
