"""Watches a server's images for drift, beside the requests and never before them."""

import logging
import os
import queue
import sys
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
from app.engine.answered import Answered, Datum
from app.engine.events import Caller, InferenceEvent
from app.observers.drift_metrics import DriftMetrics
from tasks.exchange.error import InferenceError
from tasks.vision.image import Image

__all__ = ("HEADER", "PARAMETER", "DriftWatch", "Similarity")

HEADER = "charioteer-similarity"
PARAMETER = "similarity"

_logger = logging.getLogger(__name__)

_MOST_WAITING = 64
_MOST_PIXELS = 50_000_000
"""Images that wait hold their pixels, three bytes each."""
_NICENESS = 10
_LOOK_SECONDS = 10.0
_DECIMALS = 4


class _Taken(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Images of one request, to be measured or measured already."""

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
        """That they hold in memory while they wait."""
        images = [_image(each) for each in self.data]
        return sum(each.width * each.height for each in images if each is not None)


class DriftWatch:
    """Measures images in a thread of its own at a low priority, as many a second as it may, and judges windows of them.

    Args:
        monitors: of the watched models, by their names.
        metrics: told of everything.
        per_second: images that are measured, at most, of all models together.
        alarmed: told of every window whose verdict is new.
        look: asked every now and then which monitors are other ones now; None for a model that has none any more.
        look_seconds: how often.
    """

    def __init__(
        self,
        monitors: Mapping[str, Monitor],
        metrics: DriftMetrics,
        per_second: float,
        alarmed: Callable[[Window], None] | None = None,
        look: Callable[[], Mapping[str, Monitor | None]] | None = None,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.history = History()
        self._monitors = dict(monitors)
        self._look = look
        self._look_seconds = look_seconds
        self._metrics = metrics
        self._alarmed = alarmed
        self._allowance = _Allowance(per_second)
        self._waiting: queue.SimpleQueue[_Taken | None] = queue.SimpleQueue()
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
        data = [each for each in answered.data if _image(each) is not None]
        allowed = self._allowance.take(len(data))
        self._count(event.model_name, "skipped", len(data) - allowed)
        if allowed:
            self._offer(_Taken(model=event.model_name, task_type=event.task_type, event=event.id, data=data[:allowed]))

    def measured(self, model: str, task_type: str, observations: Sequence[Observation]) -> None:
        """Take over images that were measured already."""
        self._offer(_Taken(model=model, task_type=task_type, measured=observations))

    def close(self) -> None:
        """Drop what waits, and end."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        self._thread.join(5)

    def _offer(self, taken: _Taken) -> None:
        with self._lock:
            full = self._pixels >= _MOST_PIXELS or self._waiting.qsize() >= _MOST_WAITING
            if not full:
                self._pixels += taken.pixels
                self._waiting.put(taken)
        if full:
            self._count(taken.model, "dropped", taken.count)

    def _run(self) -> None:
        _make_way()
        looked = time.monotonic()
        while True:
            if time.monotonic() - looked >= self._look_seconds:
                self._look_again()
                looked = time.monotonic()
            try:
                taken = self._waiting.get(timeout=self._look_seconds)
            except queue.Empty:
                continue
            if taken is None:
                return
            with self._lock:
                self._pixels -= taken.pixels
            try:
                self._take(taken)
            except (DriftError, InferenceError) as error:
                self._count(taken.model, "failed", taken.count)
                _logger.warning("drift of %s could not be judged: %s", taken.model, error)
            except Exception:
                self._count(taken.model, "failed", taken.count)
                _logger.exception("drift of %s could not be judged", taken.model)

    def _look_again(self) -> None:
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

    def _take(self, taken: _Taken) -> None:
        monitor = self._monitors.get(taken.model)
        if monitor is None:
            return
        seen = [_seen(each, taken.event) for each in taken.data]
        measured = taken.measured or monitor.watched.measured(seen, taken.task_type)
        # One image whose scores are not numbers would cost the window of all others.
        observations = [each for each in measured if each.finite]
        self._count(taken.model, "measured", len(observations))
        self._count(taken.model, "failed", len(measured) - len(observations))
        window = monitor.add(observations, taken.task_type)
        if window is None:
            return
        self._metrics.judged(window)
        self.history.add(window)
        if window.changed:
            found = window.comparison
            said = "has drifted" if found.drifted else "no longer drifts"
            where = ", ".join(f"{each.name} {each.where}".strip() for each in found.tests if each.drifted)
            _logger.warning("%s %s%s", window.model, said, f": {where}" if where else "")
            if self._alarmed is not None:
                self._alarmed(window)

    def _count(self, model: str, outcome: str, count: int) -> None:
        if count:
            self._metrics.images.labels(model, outcome).inc(count)


class Similarity:
    """Says of every answer how much its images are like the model's baseline: an output parameter, and a header.

    The parameter `similarity` is a number, 0..1, or a list of numbers for an output of several images. The header
    `charioteer-similarity` has the numbers of the whole response, separated by commas.

    Args:
        watched: models that have a baseline, by their names.
        watch: takes the measured images over.
    """

    def __init__(self, watched: Mapping[str, Watched], watch: DriftWatch) -> None:
        self._watched = watched
        self._watch = watch

    def __call__(self, caller: Caller, answered: Answered, model_name: str, /) -> Sequence[Mapping[str, object]]:
        watched = self._watched.get(model_name)
        if watched is None or not answered.data or any(_image(each) is None for each in answered.data):
            return ()
        task_type = watched.sample.task_type
        try:
            seen = [_seen(each, uuid.uuid4().hex) for each in answered.data]
            observations = watched.measured(seen, task_type)
            told = [None if each is None else round(each, _DECIMALS) for each in watched.similarities(observations)]
        except Exception:
            _logger.exception("the similarity of images for %s could not be told", model_name)
            return ()
        self._watch.measured(model_name, task_type, observations)
        if all(each is None for each in told):
            return ()
        caller.returned[HEADER] = ",".join("" if each is None else f"{each:g}" for each in told)
        numbers = iter(told)
        shares = [[next(numbers) for _ in output.predictions] for output in answered.outputs]
        return [{PARAMETER: each[0] if len(each) == 1 else each} for each in shares]


class _Allowance:
    """So many a second, a second's worth at once.

    Args:
        per_second: how many.
    """

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._left = max(1.0, per_second)
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self, wanted: int) -> int:
        """How many of them are allowed now."""
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


def _seen(datum: Datum, event: str) -> Seen:
    records = [msgspec.structs.asdict(each) for each in datum.prediction.records()]
    return Seen(id=f"{event}-{datum.input}-{datum.index}", image=_image(datum), records=records)


def _make_way() -> None:
    """Let requests go first."""
    if sys.platform == "linux":
        # To the kernel a thread is a process of its own: this is the priority of the calling thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
