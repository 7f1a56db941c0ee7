"""Answers token by token are the answers of a call."""

from pathlib import Path
from typing import Any

import pytest

from app.runtimes.onnxruntime.image_text_to_text.assembly import assemble
from tasks.exchange.error import InferenceError
from tasks.image_text_to_text import StreamingModel, VisionLanguageModel


@pytest.fixture
def model(tiny: Any, folder: Path) -> Any:
    return assemble(tiny.source(folder))[0]


def test_the_pieces_of_every_answer_join_to_what_the_call_answers(tiny: Any, model: Any) -> None:
    prompts = ("what is this", "red green", "w1")
    items = [tiny.ask(tiny.picture(n, 1, 2, 3), *prompts, max_new_tokens=5) for n in (1, 2)]
    call: VisionLanguageModel = model
    streaming: StreamingModel = model
    pieces = list(streaming.stream(items))
    answers = [each.answers for each in call(items)]
    expected = [((item, prompt), text) for item, texts in enumerate(answers) for prompt, text in enumerate(texts)]
    for place, text in expected:
        own = [each for each in pieces if (each.item, each.prompt) == place]
        assert "".join(each.text for each in own) == text
        assert [each.final for each in own] == [False] * (len(own) - 1) + [True]
    assert list(dict.fromkeys((each.item, each.prompt) for each in pieces)) == [place for place, _ in expected]
    assert len(pieces) > 2 * len(expected)


def test_a_question_that_cannot_be_used_is_refused_before_any_picture_is_looked_at(tiny: Any, model: Any) -> None:
    items = [tiny.ask(tiny.picture(1, 2, 3, 4), words) for words in ("what is this", " ")]
    with pytest.raises(InferenceError, match="Expected a question"):
        model.stream(items)


def test_a_stream_that_is_closed_makes_no_more_tokens(tiny: Any, model: Any) -> None:
    stream = model.stream([tiny.ask(tiny.picture(1, 2, 3, 4), "what is this", max_new_tokens=9)])
    next(stream)
    stream.close()
    assert list(stream) == []
