"""Provide a vision-language model with scripted answers and timing."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.model import ModelSource
from tasks.image_text_to_text import Answers, ImageTextToText, PromptedImage
from tasks.task import TaskType, TextChunk
from tests.support.models.engines import engine_of, fake_sources
from tests.support.models.fake_models import load_fake_model, stand_in_metadata


class Gate:
    """A gate that lets one step pass each time it opens.

    Args:
        initial_passes: how often it is open from the beginning.
    """

    def __init__(self, initial_passes: int = 0) -> None:
        self._passes = threading.Semaphore(initial_passes)
        self._arrivals = threading.Semaphore(0)

    def __call__(self) -> None:
        self._arrivals.release()
        assert self._passes.acquire(timeout=60)

    def open(self) -> None:
        """Let one more step pass."""
        self._passes.release()

    def wait_for_arrival(self) -> None:
        """Wait until the next step has come to the gate."""
        assert self._arrivals.acquire(timeout=60)


class ScriptedModel:
    """A model that answers every prompt with `steps`; an exception among them is raised.

    Args:
        steps: the pieces.
        gate: called before each of them.
    """

    def __init__(self, *steps: str | Exception, gate: Callable[[], object] = lambda: None) -> None:
        self.steps = steps
        self.gate = gate
        self.chunk_count = 0
        self.closed = threading.Event()

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        answers = [[""] * len(sample.prompts) for sample in inputs]
        with closing(self.stream(inputs)) as chunks:
            for chunk in chunks:
                raise_if_cancelled()
                answers[chunk.item][chunk.prompt] += chunk.text
        return [Answers(prompts=sample.prompts, answers=texts) for sample, texts in zip(inputs, answers, strict=True)]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        try:
            for item, sample in enumerate(inputs):
                for prompt in range(len(sample.prompts)):
                    for step in self.steps:
                        self.gate()
                        if isinstance(step, Exception):
                            raise step
                        self.chunk_count += 1
                        yield TextChunk(item=item, prompt=prompt, text=step)
                    yield TextChunk(item=item, prompt=prompt, text="", final=True)
        finally:
            self.closed.set()


class EventRecorder:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.events: list[RequestContext] = []

    def observe(self, event: RequestContext, /) -> None:
        self.events.append(event)


def scripted_engine(
    model: ScriptedModel, *observers: InferenceObserver, workers: int = 2, max_waiting: int = 32
) -> Engine:
    """Return an engine with the model "speaker", which is `model`, and the stand-ins "teller" and "detector"."""

    def load(source: ModelSource) -> Servable:
        if source.name != "speaker":
            return load_fake_model(source)
        return Servable(ImageTextToText(), model, stand_in_metadata(TaskType.IMAGE_TEXT_TO_TEXT), {})

    sources = fake_sources("teller", "detector", speaker=TaskType.IMAGE_TEXT_TO_TEXT)
    return engine_of(sources, load, *observers, workers=workers, queue_limits=QueueLimits(max_waiting=max_waiting))
