"""Test classes that yield their answers."""

import re
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.engine.streams.text_stream import TextStream
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tests.support.data.requests import pixel_input, request
from tests.support.models.model_folders import source_at, write_model
from tests.support.rejection import rejects

PREDICT = (
    "class Model:\n    {} predict(self, image, prompt):\n        yield prompt\n        yield str(image.shape[1])\n"
)


def served(folder: Path, code: str, arguments: dict[str, object] | None = None, **settings: Any) -> Servable:
    found = source_at(write_model(folder, code, task_type="IMAGE_TEXT_TO_TEXT", **settings))
    declared = msgspec.structs.replace(found.settings, arguments=arguments or {})
    return load(msgspec.structs.replace(found, settings=declared))


def asked(*widths: int) -> InferenceRequest:
    images = (pixel_input(np.zeros((4, width, 3), np.uint8), f"i{width}") for width in widths)
    return request(*images, prompts=["a", "b"])


def chunks_of(stream: TextStream) -> list[tuple[int, int, str, bool]]:
    return [(chunk.item, chunk.prompt, chunk.text, chunk.final) for chunk in stream]


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_chunks_arrive_in_order_of_images_and_prompts(tmp_path: Path, keyword: str) -> None:
    servable = served(tmp_path / "m", PREDICT.format(keyword))
    assert chunks_of(servable.stream(asked(5, 6), Limits())) == [
        chunk
        for item, width in enumerate("56")
        for prompt, text in enumerate("ab")
        for chunk in ((item, prompt, text, False), (item, prompt, width, False), (item, prompt, "", True))
    ]
    (output,) = servable.predict(asked(5), Limits()).outputs
    assert [getattr(record, "answer", "") for record in output.predictions[0].records()] == ["a5", "b5"]


def test_returned_answer_is_streamed_as_one_chunk(tmp_path: Path) -> None:
    code = "class Model:\n    def predict(self, image, prompt): return prompt + '!'"
    chunks = chunks_of(served(tmp_path / "m", code).stream(asked(5), Limits()))
    assert chunks == [(0, 0, "a!", True), (0, 1, "b!", True)]


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_dropped_stream_ends_generator_and_frees_instance(tmp_path: Path, keyword: str) -> None:
    code = f"""
        class Model:
            def __init__(self, ended): self.ended = ended
            {keyword} predict(self, image, prompt):
                try:
                    while True:
                        yield "on and on "
                finally:
                    self.ended.set()
    """
    ended = threading.Event()
    servable = served(tmp_path / "m", code, {"ended": ended})
    chunks = iter(servable.stream(asked(5), Limits()))
    next(chunks)
    assert not ended.is_set()
    del chunks
    assert ended.is_set()
    assert next(iter(servable.stream(asked(5), Limits()))).text == "on and on "


def test_error_of_a_generator_that_is_closed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = "try:\n            yield 'first'\n        finally:\n            1 / 0"
    code = f"class Model:\n    def predict(self, image, prompt):\n        {body}\n"
    chunks = iter(served(tmp_path / "m", code).stream(asked(5), Limits()))
    next(chunks)
    del chunks
    (record,) = caplog.records
    assert record.message == "a stream could not be closed"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("body", "kind", "error_text"),
    [
        ("yield 3", ErrorKind.MODEL_FAILED, "predict(), yielded: Expected a text, got 3"),
        ("import sys; sys.exit(1); yield", ErrorKind.MODEL_FAILED, "The model failed: SystemExit: 1"),
        ("import threading; threading.Event().wait(); yield", ErrorKind.DEADLINE_EXCEEDED, "within 0.1 s"),
    ],
)
def test_failure_during_stream_is_raised_after_earlier_chunks(
    tmp_path: Path, body: str, kind: ErrorKind, error_text: str
) -> None:
    code = f"class Model:\n    def predict(self, image, prompt):\n        yield 'first'\n        {body}\n"
    chunks = iter(served(tmp_path / "m", code, timeout_seconds=0.1).stream(asked(5), Limits()))
    assert next(chunks).text == "first"
    with rejects(re.escape(error_text), kind=kind):
        next(chunks)
