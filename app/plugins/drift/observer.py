"""Monitor the images of requests for drift, in a thread with a lower priority than requests."""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.background import Background
from app.core.engine.scheduling.token_bucket import Rate, TokenBucket
from app.plugins.drift.measurement import DriftInput, metadata_texts
from app.plugins.drift.monitor import DriftMetrics, DriftWindow, ModelMonitor
from app.plugins.drift.sample import DriftError, Observation
from metadata.request import InputMetadata
from tasks.inference.error import InferenceError
from tasks.inference.response import InferenceResult, SampleResult
from tasks.vision.image import image_of

_HEADER = "charioteer-similarity"
_PARAMETER = "similarity"

_logger = logging.getLogger(__name__)

MAX_WINDOWS = 200
"""Number of windows of each model that are kept in memory."""

_MAX_WAITING = 64
_MAX_BYTES = 150_000_000
"""From this size of the waiting images on, further images are dropped."""
_POLL_SECONDS = 10.0
_SECONDS_TO_CLOSE = 5.0


class DriftObserver:
    """Measure images in a thread with a low priority, and test windows of them for drift.

    `monitors` are by the name of their model. At most `per_second` images of all models together are measured.
    `poll_monitors`, called every `poll_seconds`, returns the monitors that have changed, None for a removed one.
    `background` makes the lane, as `Engine.background`.
    """

    def __init__(
        self,
        monitors: Mapping[str, ModelMonitor],
        metrics: DriftMetrics,
        per_second: float,
        poll_monitors: Callable[[], Mapping[str, ModelMonitor | None]] = dict,
        poll_seconds: float = _POLL_SECONDS,
        background: Callable[..., Background] = Background,
    ) -> None:
        self._windows: dict[str, deque[DriftWindow]] = {}
        self._monitors, self._metrics, self._poll_monitors = dict(monitors), metrics, poll_monitors
        for model in monitors:
            metrics.start(model)
        self._rate = Rate(per_second=per_second, burst=max(1, round(per_second)))
        self._bucket = TokenBucket(self._rate, time.monotonic())
        self._lock = threading.Lock()
        self._lane = background(
            "drift", _MAX_WAITING, _MAX_BYTES, tick=self._update_monitors, tick_seconds=poll_seconds
        )
        self._lane.start()

    def observe(self, context: RequestContext, /) -> None:
        result = context.result
        if (
            context.model_name not in self._monitors
            or result is None
            or context.outcome is not None
            or context.explanation
            or context.trial
            or context.similarities
        ):
            return
        samples = [(sample, image) for sample in result.samples if (image := image_of(sample.item)) is not None]
        allowed, now = 0, time.monotonic()
        with self._lock:
            while allowed < len(samples) and not self._bucket.take(self._rate, now):
                allowed += 1
        self._count(context.model_name, "skipped", len(samples) - allowed)
        if allowed:
            taken, task_type = [sample for sample, _ in samples[:allowed]], context.task_type
            event_id, metadata = context.id, context.metadata.by_input

            def measure(monitor: ModelMonitor) -> Sequence[Observation]:
                return monitor.measure([_drift_input(sample, event_id, metadata) for sample in taken], task_type)

            size = sum(3 * image.width * image.height for _, image in samples[:allowed])
            self._submit(context.model_name, task_type, allowed, measure, size)

    def annotate(
        self, context: RequestContext, result: InferenceResult, model_name: str, /
    ) -> Sequence[Mapping[str, object]]:
        """Add the similarity of images to the model's baseline to an answer: an output parameter and a header.

        The parameter `similarity` is a number, 0..1, or a list of numbers for an output of several images. The header
        `charioteer-similarity` has the numbers of the whole response, separated by commas.
        """
        monitor = self._monitors.get(model_name)
        if monitor is None or not result.samples or any(image_of(sample.item) is None for sample in result.samples):
            return ()
        task_type = monitor.sample.task_type
        try:
            metadata = context.metadata.by_input
            inputs = [_drift_input(sample, uuid.uuid4().hex, metadata) for sample in result.samples]
            observations = monitor.measure(inputs, task_type)
            similarities = [monitor.similarity(observation) for observation in observations]
        except Exception:
            _logger.exception("the similarity of images for %s could not be measured", model_name)
            return ()
        if not context.trial:
            self._submit(model_name, task_type, len(observations), lambda _: observations)
        if all(value is None for value in similarities):
            return ()
        context.similarities = similarities
        header = ("" if value is None else f"{value:g}" for value in similarities)
        context.response_headers[_HEADER] = ",".join(header)
        remaining = iter(similarities)
        values_of_outputs = [[next(remaining) for _ in output.predictions] for output in result.outputs]
        return [{_PARAMETER: values[0] if len(values) == 1 else values} for values in values_of_outputs]

    def windows(self) -> Mapping[str, Sequence[DriftWindow]]:
        """Return the latest windows of each model by name, oldest first."""
        with self._lock:
            return {model: list(windows) for model, windows in sorted(self._windows.items())}

    def close(self) -> None:
        """Drop waiting images, and stop the thread."""
        self._lane.close(_SECONDS_TO_CLOSE)

    def _submit(
        self,
        model: str,
        task_type: str,
        count: int,
        measure: Callable[[ModelMonitor], Sequence[Observation]],
        size: int = 0,
    ) -> None:
        """Add images to the window of a model, in the lane. `size` are the bytes of the images that wait."""
        if not self._lane.submit(partial(self._judge, model, task_type, count, measure), size):
            self._count(model, "dropped", count)

    def _judge(
        self, model: str, task_type: str, count: int, measure: Callable[[ModelMonitor], Sequence[Observation]]
    ) -> None:
        monitor = self._monitors.get(model)
        if monitor is None:
            return
        try:
            measured = measure(monitor)
            # One image with scores that are not finite would make the whole window fail.
            observations = [observation for observation in measured if observation.finite]
            self._count(model, "measured", len(observations))
            self._count(model, "failed", len(measured) - len(observations))
            if (tested := monitor.add(observations, task_type)) is not None:
                self._report(*tested)
        except (DriftError, InferenceError) as error:
            self._count(model, "failed", count)
            _logger.warning("drift of %s could not be judged: %s", model, error)
        except Exception:
            self._count(model, "failed", count)
            _logger.exception("drift of %s could not be judged", model)

    def _update_monitors(self) -> None:
        try:
            changed = self._poll_monitors()
        except Exception:
            _logger.exception("drift baselines are unreachable")
            return
        for model, monitor in changed.items():
            self._metrics.remove(model)
            if monitor is None:
                self._monitors.pop(model, None)
                with self._lock:
                    self._windows.pop(model, None)
                continue
            if previous := self._monitors.get(model):
                monitor.drifted = previous.drifted
            self._monitors[model] = monitor
            self._metrics.start(model)

    def _report(self, window: DriftWindow, changed: bool) -> None:
        self._metrics.update(window)
        with self._lock:
            self._windows.setdefault(window.model, deque(maxlen=MAX_WINDOWS)).append(window)
        if changed:
            verdict = "has drifted" if window.drifted else "no longer drifts"
            where = ", ".join(f"{test.name} {test.where}".strip() for test in window.tests if test.drifted)
            _logger.warning("%s %s%s", window.model, verdict, f": {where}" if where else "")

    def _count(self, model: str, outcome: str, count: int) -> None:
        if count:
            self._metrics.images.labels(model, outcome).inc(count)


def _drift_input(sample: SampleResult, event_id: str, metadata: Mapping[int, InputMetadata]) -> DriftInput:
    return DriftInput(
        id=f"{event_id}-{sample.input}-{sample.index}",
        image=image_of(sample.item),
        records=[msgspec.structs.asdict(record) for record in sample.prediction.records()],
        metadata=metadata_texts(metadata[sample.input].entries) if sample.input in metadata else {},
    )
