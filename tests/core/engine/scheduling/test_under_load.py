"""Many concurrent requests, including failed, expired and cancelled ones: every one is observed once."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager

import pytest

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.engine.scheduling.batching import BatchingRunner
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.settings.model import ModelSource
from app.core.wire.bytes_elements import StringElement
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.task import TaskType, TextChunk
from tasks.text_generation import ContinuedText, Generation, TextGeneration
from tests.core.engine.engines import new_context, stream_text
from tests.support.models.engines import engine_of, fake_sources
from tests.support.models.fake_models import stand_in_metadata
from tests.support.models.scripted_model import EventRecorder
from tests.support.polling import wait_until_async

WORKERS = 2
WAITING = 24
NAMES = ("gathered", "elsewhere", "plain", "spoken")


class SlowEcho:
    """Return the text after a short delay, which may be a wait elsewhere; fail if the text contains "bad"."""

    def __init__(self, seed: int, *, elsewhere: bool = False) -> None:
        self._random = random.Random(seed)
        self._elsewhere = elsewhere

    def __call__(self, inputs: Sequence[ContinuedText], /) -> Sequence[Generation]:
        never_set = threading.Event()
        raise_if_cancelled()
        if self._elsewhere:
            with release_worker():
                never_set.wait(self._random.random() * 0.004)
        else:
            never_set.wait(self._random.random() * 0.002)
        if any("bad" in text.text for text in inputs):
            raise ValueError("a bad text")
        return [Generation(text.text) for text in inputs]


class StreamingEcho(SlowEcho):
    """Stream the text 80 times."""

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextChunk]:
        for item, continued in enumerate(inputs):
            for _ in range(80):
                if "bad" in continued.text and self._random.random() < 0.05:
                    raise ValueError("a bad text")
                yield TextChunk(item=item, prompt=0, text=continued.text)
            yield TextChunk(item=item, prompt=0, text="", final=True)


@contextmanager
def echo_engine(seed: int, observer: EventRecorder) -> Generator[Engine]:
    def load(source: ModelSource) -> Servable:
        model = (StreamingEcho if source.name == "spoken" else SlowEcho)(seed, elsewhere=source.name == "elsewhere")
        description = stand_in_metadata(TaskType.TEXT_GENERATION)
        servable = Servable(TextGeneration(), model, description, {})
        if source.name in ("gathered", "elsewhere"):
            servable.runner = BatchingRunner(servable.runner, 4, 0.001)
        return servable

    sources = fake_sources(**dict.fromkeys(NAMES, TaskType.TEXT_GENERATION))
    bounds = QueueLimits(max_waiting=WAITING, max_waiting_each=WAITING)
    engine = engine_of(sources, load, observer, workers=WORKERS, queue_limits=bounds)
    try:
        yield engine
    finally:
        engine.close()


def text_request(model: str, text: str) -> InferenceRequest:
    tensor = BytesTensor(name="text", shape=(1,), elements=[StringElement(text)])
    return InferenceRequest(id=text, model_name=model, inputs=(tensor,))


def generated_text(response: InferenceResponse) -> str:
    (output,) = response.outputs
    (prediction,) = output.predictions
    assert isinstance(prediction, Generation)
    return prediction.text


async def ask(engine: Engine, context: RequestContext, model: str, text: str) -> None:
    def decode() -> InferenceRequest:
        return text_request(model, text)

    if model == "spoken":
        async with aclosing(stream_text(engine, context, model, decode)) as chunks:
            assert [chunk.text async for chunk in chunks] == [*[text] * 80, ""]
    else:
        assert await engine.handle(context, model, decode, generated_text) == text


async def send_requests(engine: Engine, number: int, seed: int, count: int) -> dict[str, ErrorKind | None]:
    """Send requests of every kind, and return their outcomes by request id; CANCELLED if the client left."""
    rng, outcomes = random.Random(f"{seed} {number}"), dict[str, ErrorKind | None]()
    for step in range(count):
        text = f"{number}-{step}{'bad' if rng.random() < 0.1 else ''}"
        model, ending = rng.choice(NAMES), rng.choice(("stay", "stay", "stay", "late", "cancel", "go"))
        timeout, disconnected = rng.random() * 0.01 + 1e-4 if ending == "late" else None, asyncio.Event()
        context = new_context(text, timeout=timeout, disconnected=disconnected.wait)
        work = asyncio.create_task(ask(engine, context, model, text))
        if ending in ("cancel", "go"):
            for _ in range(rng.randrange(1, 7)):
                await asyncio.sleep(0)
            (work.cancel if ending == "cancel" else disconnected.set)()
        try:
            await work
        except InferenceError as error:
            outcomes[text] = error.kind
        except asyncio.CancelledError:
            outcomes[text] = ErrorKind.CANCELLED
        else:
            outcomes[text] = None
    return outcomes


async def idle(engine: Engine) -> None:
    await wait_until_async(lambda: not engine.busy)


@pytest.mark.parametrize("seed", range(2))
def test_every_request_is_observed_once_with_the_outcome_of_its_client(seed: int) -> None:
    observer = EventRecorder()
    threads_before = set(threading.enumerate())

    async def run(engine: Engine) -> dict[str, ErrorKind | None]:
        outcomes = await asyncio.gather(*(send_requests(engine, number, seed, 8) for number in range(40)))
        await idle(engine)
        # The engine still answers afterwards.
        assert await engine.handle(new_context("last"), "plain", lambda: text_request("plain", "x"), generated_text)
        return {name: kind for of_client in outcomes for name, kind in of_client.items()}

    with echo_engine(seed, observer) as engine:
        outcomes = asyncio.run(run(engine))
        threads = [
            thread for thread in set(threading.enumerate()) - threads_before if thread.name.startswith("inference")
        ]
    assert len(threads) <= 2 * WORKERS + WAITING
    observed = Counter(event.request_id for event in observer.events)
    assert set(observed) == {*outcomes, "last"}
    assert set(observed.values()) == {1}
    observed_outcomes = {event.request_id: event.outcome for event in observer.events}
    for name, kind in outcomes.items():
        # A request that is cancelled late may already have another outcome.
        is_cancelled = kind in (ErrorKind.CANCELLED, ErrorKind.DEADLINE_EXCEEDED)
        allowed = {kind, None, ErrorKind.OVERLOADED, ErrorKind.MODEL_FAILED} if is_cancelled else {kind}
        assert observed_outcomes[name] in allowed, (name, kind, observed_outcomes[name])
    assert {None, ErrorKind.CANCELLED, ErrorKind.MODEL_FAILED, ErrorKind.OVERLOADED} <= set(outcomes.values())


@pytest.mark.parametrize("seed", range(2))
def test_close_under_load_answers_every_request(seed: int) -> None:
    observer = EventRecorder()

    async def run(engine: Engine) -> dict[str, ErrorKind | None]:
        send_tasks = [asyncio.create_task(send_requests(engine, number, seed, 6)) for number in range(40)]
        await wait_until_async(lambda: len(observer.events) >= 60)
        engine.close()
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(*send_tasks)
        await idle(engine)
        return {name: kind for of_client in outcomes for name, kind in of_client.items()}

    with echo_engine(seed, observer) as engine:
        outcomes = asyncio.run(run(engine))
    assert Counter(event.request_id for event in observer.events) == Counter(outcomes.keys())
    assert len(outcomes) == 240
    assert ErrorKind.MODEL_NOT_READY in outcomes.values()
