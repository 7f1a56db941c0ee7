"""Questions to a model and their replies, and what becomes of those that nobody waits for."""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from app.engine.interest import CancellationToken, check_interest, on_behalf_of
from app.engine.servable import BoundServable
from app.runtimes.isolated.lines import Lines
from app.runtimes.isolated.messages import Ended, Failure
from app.settings.model import ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.image_text_to_text import PromptedImage
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import TextPiece
from tasks.vision.image import Image
from tests.app.runtimes.isolated.in_thread import InThreads
from tests.support.pictures import rectangle
from tests.support.stand_ins import load_stand_in

SECONDS = 30.0


def servable(model: object = None) -> BoundServable[Any, Any]:
    """The stand-in that detects, or one with `model` in its place."""
    made = cast("BoundServable[Any, Any]", load_stand_in(ModelSource(name="detector", version="1", folder=Path("m"))))
    return made if model is None else BoundServable(made.task, cast("Any", model), made.description, {})


def picture() -> DetectionInput:
    return DetectionInput(Image(rectangle()), DetectionParameters())


@contextmanager
def open_lines(model: object = None, most: int = 2, seconds: float = SECONDS) -> Generator[Lines]:
    process = InThreads(servable(model))
    lines = Lines(cast("Any", process), most, seconds)
    try:
        yield lines
    finally:
        lines.close()
        process.join()


@pytest.fixture
def lines() -> Iterator[Lines]:
    with open_lines() as made:
        yield made


def test_predictions_are_those_of_the_model(lines: Lines) -> None:
    with lines.for_call() as line:
        (found,) = line.ask("predict", [picture()]).outcome
    (expected,) = servable().model([picture()])
    assert found.labels == expected.labels
    np.testing.assert_array_equal(found.boxes, expected.boxes)


def test_a_line_is_used_again_with_pictures_of_other_sizes(lines: Lines) -> None:
    for side in (10, 2000, 40, 900):
        pixels = np.zeros((side, side, 3), np.uint8)
        pixels[2:5, 3:8] = 255
        with lines.for_call() as line:
            (found,) = line.ask("predict", [DetectionInput(Image(pixels), DetectionParameters())]).outcome
        assert found.boxes[0].tolist() == [3, 2, 8, 5]
    assert len(cast("Any", lines.process).threads) == 1


def test_a_model_that_keeps_its_pictures_keeps_them_unchanged() -> None:
    kept: list[Any] = []

    def keeping(inputs: Sequence[DetectionInput]) -> Sequence[int]:
        kept.extend(each.image.pixels for each in inputs)
        return [int(each.image.pixels.max()) for each in inputs]

    with open_lines(keeping) as lines:
        for value in range(5):
            image = Image(np.full((100, 100, 3), value, np.uint8))
            with lines.for_call() as line:
                reply = line.ask("predict", [DetectionInput(image, DetectionParameters())])
            assert (reply.outcome, reply.kept) == ([value], True)
        assert [each.max() for each in kept] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (
            InferenceError(ErrorKind.INVALID_REQUEST, "No such prompt", "inputs[0]"),
            ErrorKind.INVALID_REQUEST,
            "No such",
        ),
        (ValueError("of its own"), ErrorKind.MODEL_FAILED, "The model failed: of its own"),
        (MemoryError(), ErrorKind.MODEL_FAILED, "The model failed: MemoryError"),
        (SystemExit(3), ErrorKind.MODEL_FAILED, "The model failed: 3"),
    ],
)
def test_what_a_model_raises_is_told_as_without_a_process(raised: BaseException, kind: ErrorKind, message: str) -> None:
    def failing(_: object) -> Sequence[object]:
        raise raised

    with open_lines(failing) as lines:
        for _ in range(2):
            with lines.for_call() as line:
                failure = line.ask("predict", [picture()]).outcome
            assert isinstance(failure, Failure)
            assert failure.kind is kind
            assert failure.message.startswith(message)


def test_an_answer_that_cannot_be_pickled_is_the_models_failure() -> None:
    def odd(_: object) -> Sequence[object]:
        return [threading.Lock()]

    with open_lines(odd) as lines, lines.for_call() as line:
        failure = line.ask("predict", [picture()]).outcome
    assert failure.kind is ErrorKind.MODEL_FAILED
    assert "cannot be pickled" in failure.message


class Telling:
    """Says three words, and whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def stream(self, inputs: Sequence[PromptedImage]) -> Generator[TextPiece]:
        try:
            for word in ("one", "two", "three"):
                yield TextPiece(item=len(inputs) - 1, text=word)
        finally:
            self.closed.set()


def test_a_stream_is_told_piece_by_piece() -> None:
    with open_lines(Telling()) as lines:
        line = lines.take()
        told = [line.ask("stream", [picture()]).outcome]
        while not isinstance(told[-1], Ended):
            told.append(line.ask("next").outcome)
        assert [each.text for each in told[:-1]] == ["one", "two", "three"]
        assert not lines.give_back(line)


def test_a_stream_is_closed_when_it_is_wanted_no_more() -> None:
    model = Telling()
    with open_lines(model) as lines:
        line = lines.take()
        line.ask("stream", [picture()])
        assert not model.closed.is_set()
        assert isinstance(line.ask("close").outcome, Ended)
        assert model.closed.is_set()
        lines.give_back(line)


def test_a_stream_is_closed_when_its_line_is() -> None:
    model = Telling()
    with open_lines(model) as lines:
        line = lines.take()
        line.ask("stream", [picture()])
        line.close()
        assert model.closed.wait(60)


class Held:
    """Answers when it is let go, or, where it `looks`, sees that nobody waits."""

    def __init__(self, *, looks: bool = False) -> None:
        self.reached, self.go = threading.Semaphore(0), threading.Event()
        self._looks = looks
        self.stopped = threading.Event()

    def __call__(self, inputs: Sequence[object]) -> Sequence[object]:
        self.reached.release()
        while not self.go.wait(0.01):
            if self._looks:
                try:
                    check_interest()
                except InferenceError:
                    self.stopped.set()
                    raise
        return list(inputs)


def left(lines: Lines, held: Held) -> None:
    """Ask, and leave without an answer."""
    interest = CancellationToken()

    def leave() -> None:
        assert held.reached.acquire(timeout=60)
        interest.leave()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with on_behalf_of(interest), pytest.raises(InferenceError), lines.for_call() as line:
        line.ask("predict", [picture()])
    leaving.join()


def test_a_call_that_nobody_waits_for_keeps_its_place_until_there_is_a_reply() -> None:
    held = Held()
    with open_lines(held, most=1, seconds=0.2) as lines:
        left(lines, held)
        (line,) = lines.left
        with pytest.raises(InferenceError) as caught, lines.for_call():
            pass
        assert caught.value.kind is ErrorKind.OVERLOADED
        held.go.set()
        line._wait()  # pyright: ignore[reportPrivateUsage]
        lines.answered(line)
        assert not lines.left
        with lines.for_call() as again:
            assert len(again.ask("predict", [picture()]).outcome) == 1


def test_a_model_that_looks_stops_when_nobody_waits() -> None:
    held = Held(looks=True)
    with open_lines(held) as lines:
        left(lines, held)
        assert held.stopped.wait(60)


def test_a_call_for_nobody_in_particular_has_an_end_as_well() -> None:
    held = Held()
    with open_lines(held, seconds=0.1) as lines:
        with pytest.raises(InferenceError) as caught, lines.for_call() as line:
            line.ask("predict", [picture()])
        assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
        held.go.set()


def test_a_process_that_ends_fails_whoever_waits_for_a_place_or_for_an_answer() -> None:
    held = Held()
    with open_lines(held, most=1) as lines, ExitStack() as stack:
        failures: list[type[BaseException]] = []

        def ask() -> None:
            try:
                with lines.for_call() as line:
                    line.ask("predict", [picture()])
            except (EOFError, OSError) as error:
                failures.append(type(error))

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for each in asking:
            each.start()
            stack.callback(each.join)
        assert held.reached.acquire(timeout=60)
        _eventually(lambda: lines.calls == 1 and lines._waiting == 2)  # pyright: ignore[reportPrivateUsage]
        lines.process.kill("for the test")
        held.go.set()
        lines.close()
        for each in asking:
            each.join(60)
        assert len(failures) == 3


def test_no_more_calls_than_allowed_are_made_at_once() -> None:
    held = Held()
    with open_lines(held, most=2) as lines:

        def ask() -> None:
            with lines.for_call() as line:
                line.ask("predict", [picture()])

        asking = [threading.Thread(target=ask) for _ in range(6)]
        for each in asking:
            each.start()
        for _ in range(2):
            assert held.reached.acquire(timeout=60)
        assert not held.reached.acquire(timeout=0.1)
        assert lines.calls == 2
        held.go.set()
        for each in asking:
            each.join(60)
        assert lines.calls == 0


def test_a_call_is_as_nice_as_whoever_makes_it() -> None:
    def nice(inputs: Sequence[object]) -> Sequence[object]:
        return [os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) for _ in inputs]

    found: list[int] = []

    def ask(more: int) -> None:
        if more:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), usual + more)
        with lines.for_call() as line:
            found.extend(line.ask("predict", [picture()]).outcome)

    usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with open_lines(nice) as lines:
        for more in (0, 3, 0, 3):
            asking = threading.Thread(target=ask, args=(more,))
            asking.start()
            asking.join()
        assert found == [usual, usual + 3, usual, usual + 3]
        assert len(cast("Any", lines.process).threads) == 2


def _eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.005)
