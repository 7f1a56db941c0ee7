"""A bounded queue whose jobs run one at a time, only while the server has an idle worker."""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from app.core.engine.models.registry import Registration
from app.core.engine.scheduling.thread_pool import lower_priority
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction, SampleResult
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

_logger = logging.getLogger(__name__)

MAX_WAITING = 32
_MAX_PIXELS = 16_000_000
"""From this number of pixels on in the images of waiting jobs, of 3 bytes each, the queue is full."""
_POLL_SECONDS = 0.005
_IDLE_SECONDS = 1.0


class ShadowedSample(msgspec.Struct, frozen=True, eq=False):
    """One sample: its id in recordings, the champion's prediction, and the size of its image; 0 without one."""

    id: str
    prediction: Prediction
    width: int = 0
    height: int = 0


class ShadowJob(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request to answer again."""

    registration: Registration  # the version that answered, the champion
    request: InferenceRequest
    decoded: InferenceRequest  # the request as `with_pixels`
    samples: Sequence[ShadowedSample]  # what the champion answered
    model_ns: int  # nanoseconds that its model took
    # Called with the number of samples that the shadow version answers in another way.
    watchers: Sequence[Callable[[int], None]] = ()

    @property
    def pixels(self) -> int:
        return sum(sample.width * sample.height for sample in self.samples)


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


class ShadowQueue:
    """Run jobs in a thread with low priority, which starts with the first job.

    Args:
        run: runs a job.
        may_run: returns whether a job may start now.
        on_idle: called about every second while no job waits.
        on_close: called at the end, if there was a job.
    """

    def __init__(
        self,
        run: Callable[[ShadowJob], None],
        may_run: Callable[[], bool],
        on_idle: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._run, self._may_run, self._on_idle, self._on_close = run, may_run, on_idle, on_close
        self._jobs: queue.SimpleQueue[ShadowJob | None] = queue.SimpleQueue()
        self._pixels = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def submit(self, job: ShadowJob) -> bool:
        """Add a job without blocking; return False if the queue is full."""
        with self._lock:
            if self._closed.is_set() or self._jobs.qsize() >= MAX_WAITING or self._pixels >= _MAX_PIXELS:
                return False
            self._pixels += job.pixels
            self._jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
                self._thread.start()
        return True

    def close(self, timeout: float) -> None:
        """Drop the jobs that wait, and wait up to `timeout` seconds for the one that runs."""
        with self._lock:
            self._closed.set()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout)

    def _work(self) -> None:
        with suppress(OSError):
            lower_priority()
        while not self._closed.is_set():
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._safely(self._on_idle)
                continue
            while not self._closed.is_set() and not self._may_run():
                self._closed.wait(_POLL_SECONDS)
            if job is None or self._closed.is_set():
                break
            with self._lock:
                self._pixels -= job.pixels
            self._safely(lambda job=job: self._run(job))
            # Drop the images now, not when the next job starts.
            del job
        self._safely(self._on_close)

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _logger.exception("shadow job failed")
