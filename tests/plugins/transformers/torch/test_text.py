"""Compare text models with the pipelines of transformers."""

from pathlib import Path
from typing import Any

import pytest

from app.core.settings.model import ModelError
from app.plugins.transformers.runtimes import TRANSFORMERS
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.text_generation import GeneratedText
from tests.plugins.transformers.torch.asking import FolderOf, Served, answers, with_template
from tests.support.data.requests import request, text_input
from tests.support.models import tiny_models
from tests.support.rejection import rejects

TEXTS = ("John lives in Paris.", "what is this?", "acmé works at hello-world, who?")


def pipeline(task: str, folder: Path) -> Any:
    return tiny_models.transformers().pipeline(task, model=str(folder), device="cpu")


def test_generated_text_equals_that_of_pipeline(folder_of: FolderOf, served: Served) -> None:
    generate = pipeline("text-generation", folder_of("causal_lm"))
    for text in ("Hello", "the quick brown"):
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "return_full_text": False}
        expected = generate(text, **options)[0]["generated_text"]
        assert answers(served("causal_lm"), text_input(text, **options)) == [[GeneratedText(expected)]]
        options["return_full_text"] = True
        with_prompt = answers(served("causal_lm"), text_input(text, **options))
        assert with_prompt == [[GeneratedText(text + expected)]]
        assert len(expected) > 4


def chat(*turns: str) -> list[dict[str, object]]:
    roles = ["user", "assistant"] * len(turns)
    return [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in zip(roles, turns)]  # noqa: B905


def test_conversation_is_formatted_with_the_chat_template(folder_of: FolderOf, served: Served, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m['role'] }} says {{ m['content'] }}. {% endfor %}assistant says"
        "{% if messages | length > 3 %}{{ raise_exception('too many messages') }}{% endif %}"
    )
    source = with_template(folder_of("causal_lm"), tmp_path / "chat", template)
    model = TRANSFORMERS.load(source)
    messages = chat("hello", "the quick", "brown")
    text = "user says hello. assistant says the quick. user says brown. assistant says"
    expected = answers(served("causal_lm"), text_input(text, max_new_tokens=9))
    tensor = text_input("brown", messages=messages, max_new_tokens=9)
    assert answers(model, tensor) == expected
    *_, last = model.stream(request(tensor), Limits())
    assert last.usage is not None
    assert (last.usage.completion, last.finish) == (9, "length")
    whole = expected[0][0].generated_text
    stopped = answers(model, text_input("a", messages=messages, max_new_tokens=9, stop=[whole[2:5]]))
    assert stopped[0][0].generated_text == whole[:2]
    control = tiny_models.transformers().AutoTokenizer.from_pretrained(source.folder).eos_token
    with pytest.raises(InferenceError, match="control tokens"):
        answers(model, text_input("a", messages=chat(f"hello {control}")))
    with pytest.raises(InferenceError, match="chat template rejects the text: too many messages"):
        answers(model, text_input("a", messages=chat(*"abcde")))


@pytest.mark.parametrize("template", ["{{ raise_exception('never') }}", "{% for m in messages %}"])
def test_template_that_rejects_a_short_message_is_rejected(folder_of: FolderOf, tmp_path: Path, template: str) -> None:
    source = with_template(folder_of("causal_lm"), tmp_path / "chat", template)
    with pytest.raises(ModelError, match=r"chat: The model's chat template rejects .* correct the chat template"):
        TRANSFORMERS.load(source)


def test_model_without_template_continues_one_message(served: Served) -> None:
    expected = answers(served("causal_lm"), text_input("hello", max_new_tokens=4))
    assert answers(served("causal_lm"), text_input("hello", messages=chat("hello"), max_new_tokens=4)) == expected
    with pytest.raises(InferenceError, match="no chat template"):
        answers(served("causal_lm"), text_input("hello", messages=chat("a", "b", "hello")))


def test_seq2seq_answer_equals_generate(folder_of: FolderOf, served: Served) -> None:
    t = tiny_models.transformers()
    model = t.AutoModelForSeq2SeqLM.from_pretrained(folder_of("t5")).eval()
    tokenizer = t.AutoTokenizer.from_pretrained(folder_of("t5"))
    generated = model.generate(**tokenizer("Hello", return_tensors="pt"), max_new_tokens=9, do_sample=False)
    expected = tokenizer.decode(generated[0], skip_special_tokens=True)
    assert answers(served("t5"), text_input("Hello", max_new_tokens=9)) == [[GeneratedText(expected)]]
    assert expected


@pytest.mark.parametrize(("text", "reason"), [("", "empty"), ("x" * 256, "leaves room")])
def test_unusable_text_is_rejected(served: Served, text: str, reason: str) -> None:
    with rejects(reason, "inputs[0].data[1]"):
        answers(served("causal_lm"), text_input("fine", text))


def test_answer_stops_at_context_length(served: Served) -> None:
    ((found,),) = answers(served("causal_lm"), text_input("x" * 250, max_new_tokens=50))
    assert 0 < len(found.generated_text.encode()) <= 18
