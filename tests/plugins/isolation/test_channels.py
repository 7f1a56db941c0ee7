"""Test calls to a model over channels, and calls that are cancelled before the reply."""

import os
import pickle
import struct
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.engine.cancellation import CancellationToken, cancellation_scope, raise_if_cancelled
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.isolation.channels import ChannelPool
from app.plugins.isolation.messages import Call
from tasks.image_text_to_text import PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import TextChunk
from tasks.vision.image import Image
from tests.plugins.isolation.in_thread import FakeProcess
from tests.support.data.images import rectangle
from tests.support.models.fake_models import load_fake_model
from tests.support.polling import wait_until
from tests.support.rejection import rejects

SECONDS = 30.0


def servable(model: object = None) -> Servable:
    """Return the fake detector, or `model` with the detector's task and description."""
    loaded = load_fake_model(ModelSource(name="detector", version="1", folder=Path("m")))
    return loaded if model is None else Servable(loaded.task, cast("Any", model), loaded.description, {})


def predict(pool: ChannelPool, pixels: NDArray[np.uint8] | None = None) -> Any:
    """Return the answer to one image in a call over any channel, by default an image of a rectangle."""
    with pool.lease() as channel:
        (answer,) = channel.call("predict", [detection_input(pixels)])
    return answer


def detection_input(pixels: NDArray[np.uint8] | None = None) -> DetectionInput:
    return DetectionInput(Image(rectangle() if pixels is None else pixels), DetectionParameters())


@contextmanager
def open_pool(model: object = None, max_calls: int = 2, seconds: float = SECONDS) -> Generator[ChannelPool]:
    process = FakeProcess(servable(model))
    pool = ChannelPool(cast("Any", process), max_calls, seconds, lambda: None)
    try:
        yield pool
    finally:
        pool.close()
        process.join()


@pytest.fixture
def pool() -> Iterator[ChannelPool]:
    with open_pool() as opened:
        yield opened


def test_predictions_equal_those_of_model(pool: ChannelPool) -> None:
    found = predict(pool)
    (expected,) = servable().model([detection_input()])
    assert found.labels == expected.labels
    np.testing.assert_array_equal(found.boxes, expected.boxes)


def test_channel_is_reused_for_images_of_other_sizes(pool: ChannelPool) -> None:
    for side in (10, 2000, 40, 900):
        pixels = np.zeros((side, side, 3), np.uint8)
        pixels[2:5, 3:8] = 255
        assert predict(pool, pixels).boxes[0].tolist() == [3, 2, 8, 5]
    assert len(cast("Any", pool.process).threads) == 1


def test_images_kept_by_model_stay_unchanged() -> None:
    kept_pixels: list[Any] = []

    def keep_pixels(inputs: Sequence[DetectionInput]) -> Sequence[int]:
        kept_pixels.extend(item.image.pixels for item in inputs)
        return [int(item.image.pixels.max()) for item in inputs]

    with open_pool(keep_pixels) as pool:
        for value in range(5):
            assert predict(pool, np.full((100, 100, 3), value, np.uint8)) == value
        assert [pixels.max() for pixels in kept_pixels] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (InferenceError(ErrorKind.INVALID_REQUEST, "No such", "inputs[0]"), ErrorKind.INVALID_REQUEST, "No such"),
        (ValueError("of its own"), ErrorKind.MODEL_FAILED, "The model failed: of its own"),
        (MemoryError(), ErrorKind.MODEL_FAILED, "The model failed: MemoryError"),
        (SystemExit(3), ErrorKind.MODEL_FAILED, "The model failed: 3"),
        (None, ErrorKind.MODEL_FAILED, "The model's answer cannot be pickled"),
    ],
)
def test_model_exception_becomes_same_failure_as_without_isolation(
    raised: BaseException | None, kind: ErrorKind, message: str
) -> None:
    def failing(_: object) -> Sequence[object]:
        if raised is None:
            return [threading.Lock()]
        raise raised

    with open_pool(failing) as pool:
        for _ in range(2):
            with pytest.raises(InferenceError) as caught:
                predict(pool)
            assert caught.value.kind is kind
            assert caught.value.message.startswith(message)


class WordStream:
    """Stream three words, and record whether the stream was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def stream(self, inputs: Sequence[PromptedImage]) -> Generator[TextChunk]:
        try:
            for word in ("one", "two", "three"):
                yield TextChunk(item=len(inputs) - 1, text=word)
        finally:
            self.closed.set()


def test_stream_arrives_chunk_by_chunk() -> None:
    with open_pool(WordStream()) as pool:
        with pool.lease(counted=False) as channel:
            chunks = [channel.call("stream", [detection_input()])]
            while chunks[-1] is not None:
                chunks.append(channel.call("next"))
            assert [chunk.text for chunk in chunks[:-1]] == ["one", "two", "three"]
            assert pool.calls == 0
        assert not pool.abandoned


@pytest.mark.parametrize("on_request", [True, False])
def test_stream_is_closed_on_request_or_with_its_channel(on_request: bool) -> None:
    model = WordStream()
    with open_pool(model) as pool, pool.lease(counted=False) as channel:
        channel.call("stream", [detection_input()])
        assert not model.closed.is_set()
        if on_request:
            assert channel.call("close") is None
            assert model.closed.is_set()
        else:
            channel.close()
            assert model.closed.wait(60)


class BlockingModel:
    """Answer once `go` is set; with `checks_token`, stop when the call is cancelled."""

    def __init__(self, *, checks_token: bool = False) -> None:
        self.reached, self.go = threading.Semaphore(0), threading.Event()
        self._checks_token = checks_token
        self.stopped = threading.Event()

    def __call__(self, inputs: Sequence[object]) -> Sequence[object]:
        self.reached.release()
        while not self.go.wait(0.01):
            if self._checks_token:
                try:
                    raise_if_cancelled()
                except InferenceError:
                    self.stopped.set()
                    raise
        return list(inputs)


def cancel_call(pool: ChannelPool, model: BlockingModel) -> None:
    """Start a call, and cancel it before it is answered."""
    token = CancellationToken()

    def cancel() -> None:
        assert model.reached.acquire(timeout=60)
        token.cancel()

    with ThreadPoolExecutor(1) as canceller:
        canceller.submit(cancel)
        with cancellation_scope(token), pytest.raises(InferenceError):
            predict(pool)


def test_cancelled_call_keeps_its_slot_until_reply_arrives() -> None:
    model = BlockingModel()
    with open_pool(model, max_calls=1, seconds=0.2) as pool:
        cancel_call(pool, model)
        (channel,) = pool.abandoned
        with rejects(kind=ErrorKind.OVERLOADED), pool.lease():
            pass
        model.go.set()
        channel._wait()  # pyright: ignore[reportPrivateUsage]
        pool.close_abandoned(channel)
        assert not pool.abandoned
        pool._seconds = SECONDS  # pyright: ignore[reportPrivateUsage]
        assert predict(pool)


def test_model_that_checks_its_token_stops_after_cancellation() -> None:
    model = BlockingModel(checks_token=True)
    with open_pool(model) as pool:
        cancel_call(pool, model)
        assert model.stopped.wait(60)


def test_call_without_cancellation_token_times_out() -> None:
    model = BlockingModel()
    with open_pool(model, seconds=0.1) as pool:
        with rejects(kind=ErrorKind.DEADLINE_EXCEEDED):
            predict(pool)
        model.go.set()


def test_process_exit_fails_running_and_waiting_calls() -> None:
    model = BlockingModel()
    with open_pool(model, max_calls=1) as pool, ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(predict, pool) for _ in range(3)]
        assert model.reached.acquire(timeout=60)
        wait_until(lambda: pool.calls == 1 and pool._waiting.count == 2)  # pyright: ignore[reportPrivateUsage]
        pool.process.kill("for the test")
        model.go.set()
        pool.close()
        assert all(isinstance(call.exception(60), (EOFError, OSError)) for call in calls)


def test_concurrent_calls_stay_within_limit() -> None:
    model = BlockingModel()
    with open_pool(model, max_calls=2) as pool:
        with ThreadPoolExecutor(6) as threads:
            calls = [threads.submit(predict, pool) for _ in range(6)]
            for _ in range(2):
                assert model.reached.acquire(timeout=60)
            assert not model.reached.acquire(timeout=0.1)
            assert pool.calls == 2
            model.go.set()
            wait(calls, 60)
        assert pool.calls == 0


def test_call_runs_at_nice_value_of_its_caller() -> None:
    def nice_values(inputs: Sequence[object]) -> Sequence[object]:
        return [os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) for _ in inputs]

    def ask(increment: int) -> int:
        if increment:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), usual + increment)
        return predict(pool)

    usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with open_pool(nice_values) as pool:
        for increment in (0, 3, 0, 3):
            with ThreadPoolExecutor(1) as caller:
                assert caller.submit(ask, increment).result() == usual + increment
        assert len(cast("Any", pool.process).threads) == 2


def test_large_shared_memory_is_released_by_both_ends() -> None:
    def sizes(inputs: Sequence[DetectionInput]) -> Sequence[int]:
        return [item.image.pixels.size for item in inputs]

    with open_pool(sizes) as pool:
        for side in (4800, 100, 4800):
            assert predict(pool, np.zeros((side, side, 3), np.uint8)) == 3 * side**2
        # The model's end releases its memory after the answer.
        wait_until(lambda: max(shared_memory_sizes(), default=0) <= 64 * 1024 * 1024)


def shared_memory_sizes() -> list[int]:
    """Return the size of each mapping of image memory; this process holds both ends."""
    mapped = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "charioteer-in" in line]
    return [int(end, 16) - int(start, 16) for start, _, end in (addresses.partition("-") for addresses in mapped)]


def test_inputs_whose_memory_is_lost_are_rejected_and_next_are_read() -> None:
    with open_pool() as pool:
        with pool.lease() as channel:
            question = pickle.dumps(Call("predict", b"", ((0, 4096),), 0))
            os.write(channel.fileno(), struct.pack("<Q?", len(question), True) + question)
            assert predict(pool)
            with rejects("no memory, or no descriptor", kind=ErrorKind.OVERLOADED):
                channel.call("downscale", (640, 480))
        with pool.lease() as channel:
            channel.close()
