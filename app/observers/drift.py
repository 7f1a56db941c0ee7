"""Monitor the images of requests for drift, in a thread with a lower priority than requests."""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from app.drift.history import History
from app.drift.measuring import Seen
from app.drift.monitor import Monitor, Watched, Window
from app.drift.sample import DriftError, Observation
from app.engine.answered import Datum, InferenceResult
from app.engine.events import InferenceEvent, RequestInfo
from app.engine.explain import lower_priority
from app.observers.drift_metrics import DriftMetrics
from tasks.exchange.error import InferenceError
from tasks.vision.image import Image

__all__ = ("HEADER", "PARAMETER", "DriftWatch", "Similarity")

HEADER = "charioteer-similarity"
PARAMETER = "similarity"

_logger = logging.getLogger(__name__)

_MAX_WAITING = 64
_MAX_PIXELS = 50_000_000
"""Maximum number of pixels in waiting images; each takes three bytes."""
_POLL_SECONDS = 10.0
_DECIMALS = 4


class _Batch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Images of one request: samples to measure, or finished measurements."""

    model: str
    task_type: str
    event: str = ""
    data: Sequence[Datum] = ()
    measured: Sequence[Observation] = ()

    @property
    def count(self) -> int:
        return len(self.measured) or len(self.data)

    @property
    def pixels(self) -> int:
        """Return the number of pixels that the images hold in memory."""
        images = [_image(datum) for datum in self.data]
        return sum(image.width * image.height for image in images if image is not None)


class DriftWatch:
    """Measure images in a thread with a low priority, at a limited rate, and test windows of them for drift.

    Args:
        monitors: the monitors of models, by model name.
        metrics: the metrics to update.
        per_second: maximum number of measured images per second, of all models together.
        alarmed: called with every window whose verdict differs from the last one.
        look: return the monitors that have changed, with None for a removed one; called periodically.
        look_seconds: seconds between these calls.
    """

    def __init__(
        self,
        monitors: Mapping[str, Monitor],
        metrics: DriftMetrics,
        per_second: float,
        alarmed: Callable[[Window], None] | None = None,
        look: Callable[[], Mapping[str, Monitor | None]] | None = None,
        look_seconds: float = _POLL_SECONDS,
    ) -> None:
        self.history = History()
        self._monitors = dict(monitors)
        self._look = look
        self._look_seconds = look_seconds
        self._metrics = metrics
        self._alarmed = alarmed
        self._rate_limit = _RateLimit(per_second)
        self._waiting: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._pixels = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="drift", daemon=True)
        self._thread.start()

    def observe(self, event: InferenceEvent, /) -> None:
        answered = event.answered
        if event.model_name not in self._monitors or answered is None or event.outcome is not None or event.explanation:
            return
        if HEADER in event.caller.returned:
            return
        data = [datum for datum in answered.data if _image(datum) is not None]
        allowed = self._rate_limit.take(len(data))
        self._count(event.model_name, "skipped", len(data) - allowed)
        if allowed:
            self._submit(_Batch(model=event.model_name, task_type=event.task_type, event=event.id, data=data[:allowed]))

    def measured(self, model: str, task_type: str, observations: Sequence[Observation]) -> None:
        """Add observations that were measured elsewhere."""
        self._submit(_Batch(model=model, task_type=task_type, measured=observations))

    def close(self) -> None:
        """Drop waiting images, and stop the thread."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        self._thread.join(5)

    def _submit(self, batch: _Batch) -> None:
        with self._lock:
            full = self._pixels >= _MAX_PIXELS or self._waiting.qsize() >= _MAX_WAITING
            if not full:
                self._pixels += batch.pixels
                self._waiting.put(batch)
        if full:
            self._count(batch.model, "dropped", batch.count)

    def _run(self) -> None:
        lower_priority()
        polled = time.monotonic()
        while True:
            if time.monotonic() - polled >= self._look_seconds:
                self._update_monitors()
                polled = time.monotonic()
            try:
                batch = self._waiting.get(timeout=self._look_seconds)
            except queue.Empty:
                continue
            if batch is None:
                return
            with self._lock:
                self._pixels -= batch.pixels
            try:
                self._measure(batch)
            except (DriftError, InferenceError) as error:
                self._count(batch.model, "failed", batch.count)
                _logger.warning("drift of %s could not be judged: %s", batch.model, error)
            except Exception:
                self._count(batch.model, "failed", batch.count)
                _logger.exception("drift of %s could not be judged", batch.model)

    def _update_monitors(self) -> None:
        if self._look is None:
            return
        try:
            changed = self._look()
        except Exception:
            _logger.exception("baselines could not be looked for")
            return
        for model, monitor in changed.items():
            self._metrics.forget(model)
            if monitor is None:
                self._monitors.pop(model, None)
                continue
            if former := self._monitors.get(model):
                monitor.follow(former)
            self._monitors[model] = monitor

    def _measure(self, batch: _Batch) -> None:
        monitor = self._monitors.get(batch.model)
        if monitor is None:
            return
        samples = [_sample(datum, batch.event) for datum in batch.data]
        measured = batch.measured or monitor.watched.measured(samples, batch.task_type)
        # One image with scores that are not finite would make the whole window fail.
        observations = [observation for observation in measured if observation.finite]
        self._count(batch.model, "measured", len(observations))
        self._count(batch.model, "failed", len(measured) - len(observations))
        window = monitor.add(observations, batch.task_type)
        if window is None:
            return
        self._metrics.judged(window)
        self.history.add(window)
        if window.changed:
            comparison = window.comparison
            verdict = "has drifted" if comparison.drifted else "no longer drifts"
            where = ", ".join(f"{test.name} {test.where}".strip() for test in comparison.tests if test.drifted)
            _logger.warning("%s %s%s", window.model, verdict, f": {where}" if where else "")
            if self._alarmed is not None:
                self._alarmed(window)

    def _count(self, model: str, outcome: str, count: int) -> None:
        if count:
            self._metrics.images.labels(model, outcome).inc(count)


class Similarity:
    """Add the similarity of images to the model's baseline to every answer: an output parameter and a header.

    The parameter `similarity` is a number, 0..1, or a list of numbers for an output of several images. The header
    `charioteer-similarity` has the numbers of the whole response, separated by commas.

    Args:
        watched: models that have a baseline, by name.
        watch: receives the measurements.
    """

    def __init__(self, watched: Mapping[str, Watched], watch: DriftWatch) -> None:
        self._watched = watched
        self._watch = watch

    def __call__(
        self, caller: RequestInfo, answered: InferenceResult, model_name: str, /
    ) -> Sequence[Mapping[str, object]]:
        watched = self._watched.get(model_name)
        if watched is None or not answered.data or any(_image(datum) is None for datum in answered.data):
            return ()
        task_type = watched.sample.task_type
        try:
            samples = [_sample(datum, uuid.uuid4().hex) for datum in answered.data]
            observations = watched.measured(samples, task_type)
            similarities = [
                None if value is None else round(value, _DECIMALS) for value in watched.similarities(observations)
            ]
        except Exception:
            _logger.exception("the similarity of images for %s could not be told", model_name)
            return ()
        self._watch.measured(model_name, task_type, observations)
        if all(value is None for value in similarities):
            return ()
        caller.returned[HEADER] = ",".join("" if value is None else f"{value:g}" for value in similarities)
        remaining = iter(similarities)
        values_of_outputs = [[next(remaining) for _ in output.predictions] for output in answered.outputs]
        return [{PARAMETER: values[0] if len(values) == 1 else values} for values in values_of_outputs]


class _RateLimit:
    """A token bucket that holds the tokens of one second.

    Args:
        per_second: tokens per second.
    """

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._left = max(1.0, per_second)
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """Take up to `wanted` tokens, and return how many."""
        with self._lock:
            now = time.monotonic()
            self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
            self._at = now
            allowed = min(wanted, int(self._left))
            self._left -= allowed
        return allowed


def _image(datum: Datum) -> Image | None:
    image = getattr(datum.item, "image", None)
    return image if isinstance(image, Image) else None


def _sample(datum: Datum, event: str) -> Seen:
    records = [msgspec.structs.asdict(record) for record in datum.prediction.records()]
    return Seen(id=f"{event}-{datum.input}-{datum.index}", image=_image(datum), records=records)
