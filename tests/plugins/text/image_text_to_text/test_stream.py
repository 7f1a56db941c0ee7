"""Test that streamed answers equal the answers of a call."""

from pathlib import Path
from typing import Any

import pytest

from app.plugins.text.image_text_to_text.assembly import assemble
from tasks.image_text_to_text import VisionLanguageModel
from tasks.inference.error import InferenceError
from tasks.task import StreamingModel, TokenUsage
from tests.plugins.text.image_text_to_text import tiny


@pytest.fixture
def model(folder: Path) -> Any:
    return assemble(tiny.source(folder))[0]


def test_joined_chunks_of_each_answer_equal_call_answer(model: Any) -> None:
    prompts = ("what is this", "red green", "w1")
    items = [tiny.prompted_image(tiny.image_with_features(n, 1, 2, 3), *prompts, max_new_tokens=5) for n in (1, 2)]
    call: VisionLanguageModel = model
    streaming: StreamingModel = model
    chunks = list(streaming.stream(items))
    answers = [prediction.answers for prediction in call(items)]
    expected = [((item, prompt), text) for item, texts in enumerate(answers) for prompt, text in enumerate(texts)]
    for position, text in expected:
        own = [chunk for chunk in chunks if (chunk.item, chunk.prompt) == position]
        assert "".join(chunk.text for chunk in own) == text
        assert [chunk.final for chunk in own] == [False] * (len(own) - 1) + [True]
    assert list(dict.fromkeys((chunk.item, chunk.prompt) for chunk in chunks)) == [position for position, _ in expected]
    assert len(chunks) > 2 * len(expected)
    assert (chunks[-1].usage, chunks[-1].finish) == (TokenUsage(prompt=7, completion=5), "length")


def test_unusable_prompt_is_rejected_before_streaming_starts(model: Any) -> None:
    items = [tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), words) for words in ("what is this", " ")]
    with pytest.raises(InferenceError, match="Expected a question"):
        model.stream(items)


def test_closed_stream_generates_no_more_tokens(model: Any) -> None:
    stream = model.stream([tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), "what is this", max_new_tokens=9)])
    next(stream)
    stream.close()
    assert list(stream) == []
