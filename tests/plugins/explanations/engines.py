"""An engine that explains, with a detector that waits as a test says."""

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.model import ModelSource
from app.plugins.explanations import request as requests
from app.plugins.explanations.pixels import Explanation
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.core.engine.engines import new_context
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input
from tests.support.models.engines import engine_of, fake_sources
from tests.support.models.fake_models import LABELS, detect, load_fake_model, stand_in_metadata
from tests.support.models.scripted_model import EventRecorder

NAMES = ("classifier", "detector", "segmenter", "teller", "failing")

Explanations = Sequence[Sequence[Explanation]]


class SlowDetector:
    """Wait with every batch of masked copies, but not with the image itself."""

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self.called = threading.Event()
        self.batches: list[int] = []
        self.niceness: set[int] = set()
        self._wait = wait

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        self.batches.append(len(inputs))
        if len(inputs) > 1:
            self.called.set()
            self.niceness.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            self._wait()
        return detect(inputs)


@contextmanager
def running(
    model: SlowDetector | None = None,
    observer: EventRecorder | None = None,
    bounds: QueueLimits | None = None,
    **limits: Any,
) -> Generator[Engine]:
    """Run an engine with fake models, and with `model` under the name slow."""

    def load(source: ModelSource) -> Servable:
        if source.name != "slow":
            return load_fake_model(source)
        return Servable(ObjectDetection(), model or detect, stand_in_metadata(TaskType.OBJECT_DETECTION, LABELS), {})

    sources, observers = fake_sources(*NAMES, slow=TaskType.OBJECT_DETECTION), [observer] if observer else []
    engine = engine_of(sources, load, *observers, limits=Limits(**limits), workers=1, queue_limits=bounds)
    try:
        yield engine
    finally:
        engine.close()


def request(model: str = "detector", count: int = 1, **parameters: object) -> InferenceRequest:
    tensor = file_input(*[encode_image(rectangle())] * count, score_threshold=0.5)
    parameters = {"samples": 48} | parameters
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,), parameters=parameters)


def _both(response: InferenceResponse, explanations: Any) -> tuple[InferenceResponse, Explanations]:
    return response, explanations


async def explain_slowly(
    engine: Engine, samples: int = 48, context: RequestContext | None = None
) -> tuple[InferenceResponse, Explanations]:
    """Explain one image by the model slow."""
    return await requests.explain(
        engine, context or new_context(), "slow", lambda: request("slow", samples=samples), _both
    )


def explain(engine: Engine, decode: Callable[[], InferenceRequest]) -> tuple[InferenceResponse, Explanations]:
    """Explain a request."""
    return asyncio.run(requests.explain(engine, new_context(), "detector", decode, _both))
