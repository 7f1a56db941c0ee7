"""Test the calls that a model process serves, in a thread instead of a process."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.models.servable import Servable
from app.core.engine.remote import Failure
from app.core.settings.model import ModelSource
from app.plugins.isolation.worker import CallServer
from tasks.inference.error import ErrorKind, InferenceError
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import TextChunk
from tasks.vision.image import Image
from tests.support.data.images import rectangle
from tests.support.models.fake_models import load_fake_model

SECONDS = 30.0
INPUT = DetectionInput(Image(rectangle()), DetectionParameters())


def servable(model: object = None) -> Servable:
    """Return the fake detector, or `model` with the detector's task and description."""
    loaded = load_fake_model(ModelSource(name="detector", version="1", folder=Path("m")))
    return loaded if model is None else Servable(loaded.task, cast("Any", model), loaded.description, {})


@contextmanager
def served(model: object = None) -> Generator[Connection]:
    """Yield the server's end of a connection to a model."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=CallServer(theirs, servable(model)).serve)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(SECONDS)
    assert not thread.is_alive()


def call(connection: Connection, kind: str, inputs: object) -> Any:
    connection.send((kind, inputs))
    assert connection.poll(SECONDS)
    return connection.recv()


def test_predictions_equal_those_of_model() -> None:
    (expected,) = servable().model([INPUT])
    with served() as connection:
        for _ in range(2):
            (found,) = call(connection, "predict", [INPUT])
            assert found.labels == expected.labels
            np.testing.assert_array_equal(found.boxes, expected.boxes)


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (InferenceError(ErrorKind.INVALID_REQUEST, "No such", "inputs[0]"), ErrorKind.INVALID_REQUEST, "No such"),
        (ValueError("of its own"), ErrorKind.MODEL_FAILED, "The model failed: of its own"),
        (MemoryError(), ErrorKind.MODEL_FAILED, "The model failed: MemoryError"),
        (SystemExit(3), ErrorKind.MODEL_FAILED, "The model failed: 3"),
        (None, ErrorKind.MODEL_FAILED, "The model failed: cannot pickle"),
    ],
)
def test_model_exception_becomes_same_failure_as_without_isolation(
    raised: BaseException | None, kind: ErrorKind, message: str
) -> None:
    def failing(_: object) -> Sequence[object]:
        if raised is None:
            return [threading.Lock()]
        raise raised

    with served(failing) as connection:
        for _ in range(2):
            failure = call(connection, "predict", [INPUT])
            assert isinstance(failure, Failure)
            assert failure.kind is kind
            assert failure.message.startswith(message)


class WordStream:
    """Stream three words, and record whether the stream was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def stream(self, inputs: Sequence[DetectionInput]) -> Generator[TextChunk]:
        try:
            for word in ("one", "two", "three"):
                yield TextChunk(item=len(inputs) - 1, text=word)
        finally:
            self.closed.set()


def test_stream_arrives_chunk_by_chunk_and_may_be_closed_early() -> None:
    model = WordStream()
    with served(model) as connection:
        chunks = [call(connection, "stream", [INPUT])]
        while chunks[-1] is not None:
            chunks.append(call(connection, "next", None))
        assert [chunk.text for chunk in chunks[:-1]] == ["one", "two", "three"]
        model.closed.clear()
        call(connection, "stream", [INPUT])
        assert not model.closed.is_set()
        connection.send(None)
        assert model.closed.wait(SECONDS)
        assert call(connection, "stream", [INPUT]).text == "one", "the end of a stream has no answer"


class BlockingModel:
    """Stop when the call is cancelled."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def __call__(self, inputs: Sequence[object]) -> Sequence[object]:
        self.reached.set()
        while inputs:
            raise_if_cancelled()
        return []


def test_model_that_checks_its_token_stops_after_cancellation() -> None:
    model = BlockingModel()
    with served(model) as connection:
        connection.send(("predict", [INPUT]))
        assert model.reached.wait(SECONDS)
        connection.send(None)
        assert connection.recv().kind is ErrorKind.CANCELLED
        connection.send(None)
        assert call(connection, "predict", []) == [], "a cancellation after the outcome is ignored"
