"""Answer images in threads, with few in memory, in the order of the source."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from app.plugins.bulk_run.predictors import Predictor
from app.plugins.bulk_run.source import SourceImage
from app.plugins.recording.inference import RecordedInference

_AHEAD = 4
"""Calls for each thread that run, wait or have results, so that one slow call does not stop the other threads."""

_Rows = Sequence[RecordedInference]


def predict_all(images: Iterable[SourceImage], predict: Predictor, threads: int, batch: int) -> Iterator[_Rows]:
    """Yield the rows of `batch` images at a time. A thread reads and decodes images while others run the model.

    Raises:
        ServerUnavailableError: as `predict`; all rows before it have been yielded.
    """
    jobs = SimpleQueue[tuple[Future[_Rows], Sequence[SourceImage]] | None]()

    def work() -> None:
        while (job := jobs.get()) is not None:
            future, chunk = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(predict(chunk))
                except BaseException as error:  # noqa: BLE001  the main thread raises it
                    future.set_exception(error)

    # Daemon threads, so that a hung model or server does not prevent the exit.
    workers = [Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    pending: deque[Future[_Rows]] = deque()
    try:
        for chunk in batched(images, batch):
            future = Future[_Rows]()
            pending.append(future)
            jobs.put((future, chunk))
            if len(pending) >= _AHEAD * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for _ in workers:
            jobs.put(None)


def batched(images: Iterable[SourceImage], size: int) -> Iterator[Sequence[SourceImage]]:
    """Yield the images in lists of `size`; the last may be shorter."""
    remaining = iter(images)
    return iter(lambda: list(islice(remaining, size)), [])
