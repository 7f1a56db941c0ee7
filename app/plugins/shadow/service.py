"""Answer a share of the requests with shadow versions, and record how far the answers agree."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as CounterMetric

from app.clients.protocol import Records
from app.core.assembly.models import load
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.settings.model import ModelError, ModelSource
from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.answers import MEASURED_TASKS
from app.plugins.evaluation.dataset import EvaluationError, Item
from app.plugins.recording.api import ShadowWatch
from app.plugins.recording.inference import summarize
from app.plugins.recording.row_converter import Redaction
from app.plugins.recording.rules import is_sampled
from app.plugins.shadow.rows import ShadowAnswer, ShadowWriter
from app.plugins.shadow.settings import settings_of, shadow_source
from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction, SampleResult
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.vision.image import Image, image_of
from tasks.vision.request import ImageItem

_logger = logging.getLogger(__name__)

MAX_WAITING = 32
_MAX_BYTES = 48_000_000
"""From this size of the images of waiting requests on, further requests are dropped."""
_SECONDS_TO_CLOSE = 5.0
_TICK_SECONDS = 1.0
_MAX_SHOWN = 50


class ShadowJob(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request to answer again."""

    registration: Registration  # the version that answered, the champion
    request: InferenceRequest
    decoded: InferenceRequest  # the request as `with_pixels`
    samples: Sequence[tuple[Item, Prediction]]  # by the id in recordings, what the champion answered
    model_ns: int  # nanoseconds that its model took
    # Called with the number of samples that the shadow version answers in another way.
    watchers: Sequence[Callable[[int], None]] = ()

    @property
    def size(self) -> int:
        """Return the bytes of the decoded images."""
        return sum(3 * item.width * item.height for item, _ in self.samples)


class DifferentAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """An image for the page: its id, time in microseconds, model, versions, and a summary of both answers."""

    id: str
    time: int
    model: str
    champion: str
    version: str
    before: str
    after: str


class Shadows:
    """Observe requests, and answer some of them again with the shadow version of their model."""

    def __init__(self, engine: Engine, writer: ShadowWriter, redaction: Redaction, metrics: CollectorRegistry) -> None:
        self._engine, self._writer, self._redaction = engine, writer, redaction
        self._images = CounterMetric(
            "charioteer_shadow_images",
            "Images that shadow versions answered: agreed, differs, failed; or dropped under load.",
            ["model", "version", "outcome"],
            registry=metrics,
        )
        # By name and version of the champion: its source, which a reload replaces; None if the shadow cannot be loaded.
        self._servables: dict[tuple[str, str], tuple[ModelSource, Servable | None]] = {}
        self._differing: deque[DifferentAnswers] = deque(maxlen=_MAX_SHOWN)
        self._lane = engine.background(
            "shadow versions", MAX_WAITING, _MAX_BYTES, when_idle=True, tick=self._tidy_up, tick_seconds=_TICK_SECONDS
        )

    def observe(self, context: RequestContext, /) -> None:
        registration, result, request = context.registration, context.result, context.request
        if registration is None or result is None or request is None:
            return
        if context.outcome or context.explanation or context.trial or registration.is_tensor_view:
            return
        settings = settings_of(registration.source)
        if not settings.version or not is_sampled(context.id, settings.share):
            return
        samples: list[tuple[Item, Prediction]] = []
        for sample in result.samples:
            name, image = f"{context.id}-{sample.input}-{sample.index}", image_of(sample.item)
            width, height = (0, 0) if image is None else (image.width, image.height)
            samples.append((Item(id=name, image=Path(name), width=width, height=height), sample.prediction))
        watchers = [watch(context) for watch in self._engine.provided.find(ShadowWatch)]
        job = ShadowJob(
            registration=registration,
            request=request,
            decoded=with_pixels(request, result.samples),
            samples=samples,
            model_ns=result.model_ns,
            watchers=[watcher for watcher in watchers if watcher is not None],
        )
        if not self._lane.submit(partial(self._answer, job), job.size):
            self._count(job, "dropped", len(samples))

    def differing(self) -> Sequence[DifferentAnswers] | None:
        """Return the latest images with different answers, the newest first; None if no model has a shadow version."""
        sources = (one.source for one in self._engine.registry.registrations)
        return [*reversed(self._differing)] if any(settings_of(source).version for source in sources) else None

    def close(self, seconds: float) -> None:
        """Drop what waits, and record what was answered."""
        self._lane.close(min(seconds, _SECONDS_TO_CLOSE), last=self._writer.close)

    def _tidy_up(self) -> None:
        """Write what was answered, and release the shadow versions of models that are no longer loaded."""
        self._writer.flush()
        ready = [one.source for one in self._engine.registry.registrations if one.servable is not None]
        sources = {(source.name, source.version): source for source in ready}
        self._servables = {key: found for key, found in self._servables.items() if sources.get(key) is found[0]}

    def _answer(self, job: ShadowJob) -> None:
        source = job.registration.source
        loaded, servable = self._servables.get((source.name, source.version), (None, None))
        if loaded is not source:
            servable = self._load(job.registration)
            self._servables[source.name, source.version] = source, servable
        if servable is None:
            self._count(job, "failed", len(job.samples))
            return
        settings = settings_of(source)
        compared = ShadowAnswer(version=settings.version, champion_ms=job.model_ns / 1e6)
        try:
            # A model that decodes images at a fraction of their size needs the encoded ones.
            request = job.request if servable.downscale else job.decoded
            result = servable.predict(request, self._engine.limits)
        except InferenceError as error:
            self._count(job, "failed", len(job.samples))
            failed = msgspec.structs.replace(compared, error=self._redaction.message(str(error)))
            for item, _ in job.samples:
                self._writer.add(item.id, failed)
            return
        compared = msgspec.structs.replace(compared, shadow_ms=result.model_ns / 1e6)
        differing = 0
        for (item, before), answer in zip(job.samples, result.samples, strict=True):
            found = self._compare(compared, item, before, answer.prediction, source, servable.description.task_type)
            self._count(job, "agreed" if found.agreed else "differs", 1)
            differing += found.agreed is False
            self._writer.add(item.id, found)
        for watcher in job.watchers:
            watcher(differing)

    def _compare(
        self,
        compared: ShadowAnswer,
        item: Item,
        champion_answer: Prediction,
        answer: Prediction,
        champion: ModelSource,
        task_type: str,
    ) -> ShadowAnswer:
        before, after = (msgspec.to_builtins(one.records()) for one in (champion_answer, answer))
        try:
            agreement = compare_answers([item], {item.id: before}, {item.id: after})
        except EvaluationError as error:
            return msgspec.structs.replace(compared, error=str(error))
        matched = agreement.matched
        agreed = agreement.labels == 1 and (matched is None or matched == len(before) == len(after))
        before, after = (cast("Records", self._redaction.value(records)) for records in (before, after))
        if not agreed:
            different = DifferentAnswers(
                id=item.id,
                time=time.time_ns() // 1000,
                model=champion.name,
                champion=champion.version,
                version=compared.version,
                before=summarize(before, task_type),
                after=summarize(after, task_type),
            )
            self._differing.append(different)
        return msgspec.structs.replace(
            compared,
            agreed=agreed,
            mean_iou=agreement.mean_iou,
            score_difference=agreement.score_difference,
            records=after if settings_of(champion).records else None,
        )

    def _load(self, registration: Registration) -> Servable | None:
        """Load the shadow version of a champion; None if it cannot answer the same requests."""
        try:
            champion = registration.source
            served = [one.source.version for one in self._engine.registry.versions(champion.name)]
            source = shadow_source(champion, served)
            servable = load(source)
            task_type = registration.ready_servable().description.task_type
            if servable.description.task_type != task_type or task_type not in MEASURED_TASKS:
                raise ModelError(f"{source.folder}: Expected a model of {task_type} whose answers can be compared")
        except ModelError as error:
            _logger.error("the shadow version of %s cannot be loaded: %s", registration.source.name, error)
            return None
        _logger.info("%s: version %s answers in the shadow", source.name, source.version)
        return servable

    def _count(self, job: ShadowJob, outcome: str, count: int) -> None:
        source = job.registration.source
        self._images.labels(source.name, settings_of(source).version, outcome).inc(count)


def with_pixels(request: InferenceRequest, samples: Sequence[SampleResult]) -> InferenceRequest:
    """Return the request with the pixels that the champion decoded, because decoding them again costs much.

    Inputs of several images, and images that were decoded at a fraction of their size, stay encoded.
    """
    inputs, counts = list(request.inputs), Counter(sample.input for sample in samples)
    for sample in samples:
        encoded, item = inputs[sample.input], sample.item
        if isinstance(item, ImageItem) and isinstance(encoded, BytesTensor) and counts[sample.input] == 1:
            image: Image = item.image
            if image.full_size is None:
                pixels, parameters = image.pixels[np.newaxis], encoded.parameters
                decoded = Tensor(name=encoded.name, datatype=Datatype.UINT8, data=pixels, parameters=parameters)
                inputs[sample.input] = decoded
    return msgspec.structs.replace(request, inputs=tuple(inputs))
