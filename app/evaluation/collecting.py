"""Request an answer for every item, several at once, and write the answers to the journal."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Event, Thread

from app.evaluation.dataset import Item
from app.evaluation.extras import EvaluationError
from app.evaluation.journal import Journal, Records, Told

__all__ = ("Asker", "AskingError", "Collected", "collect")

Asker = Callable[[Item, bytes], Records]
"""Returns the records for an item and the bytes of its image. Several threads call it.

Raises:
    AskingError: when there is no answer.
"""

_Outcome = tuple[Item, Records | BaseException]
_GRACE_SECONDS = 2.0
"""Seconds to wait for requests in flight after an interruption."""
_MAX_FAILURES = 10
"""Number of failures before the first success that end the evaluation."""


class AskingError(Exception):
    """One item was not answered, with the reason."""


@dataclass(slots=True)
class Collected:
    """The answers for a dataset.

    Attributes:
        records: records by the id of the item.
        failures: reasons by the id of the item.
    """

    records: dict[str, Records] = field(default_factory=dict[str, Records])
    failures: dict[str, str] = field(default_factory=dict[str, str])


def collect(
    items: Sequence[Item],
    ask: Asker,
    book: Journal,
    *,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Collected:
    """Request answers for items without an answer in the journal, and for items whose image has changed.

    After an interruption, the journal contains all answers so far, and those that arrive within two seconds.

    Args:
        items: the items.
        ask: requests an answer.
        book: the journal for the answers.
        concurrency: number of parallel requests.
        progress: called with the number of finished items.

    Raises:
        EvaluationError: when the first requests or all requests fail. Other errors of `ask` propagate.
    """
    done = Collected()
    todo, outcomes, stopping = SimpleQueue[Item | None](), SimpleQueue[_Outcome](), Event()
    remaining = iter(items)
    for item in islice(remaining, 2 * concurrency):
        todo.put(item)

    def work() -> None:
        while (item := todo.get()) is not None and not stopping.is_set():
            try:
                outcomes.put((item, _one(item, ask, book)))
            except AskingError as error:
                outcomes.put((item, error))
            except BaseException as error:  # noqa: BLE001  the main thread raises it
                stopping.set()
                outcomes.put((item, error))

    # Daemon threads, so that a hung server does not prevent the exit.
    threads = [Thread(target=work, daemon=True) for _ in range(min(concurrency, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for _ in items:
            _take(*outcomes.get(), done)
            progress(len(done.records) + len(done.failures))
            todo.put(next(remaining, None))
    finally:
        stopping.set()
        for _ in threads:
            todo.put(None)
        last = time.monotonic() + _GRACE_SECONDS
        for thread in threads:
            thread.join(max(0.0, last - time.monotonic()))
    if not done.records and done.failures:
        name, reason = next(iter(done.failures.items()))
        raise EvaluationError(f"Not one of {len(items)} images was answered; {name}: {reason}")
    return done


def _one(item: Item, ask: Asker, book: Journal) -> Records:
    try:
        data = item.image.read_bytes()
    except OSError as error:
        raise AskingError(f"{item.image} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(data).hexdigest()
    known: Mapping[str, Told] = book.known
    if item.id in known and known[item.id].digest == digest:
        return known[item.id].records
    records = ask(item, data)
    book.add(Told(id=item.id, digest=digest, records=records))
    return records


def _take(item: Item, outcome: Records | BaseException, done: Collected) -> None:
    if isinstance(outcome, AskingError):
        done.failures[item.id] = str(outcome)
        if not done.records and len(done.failures) >= _MAX_FAILURES:
            raise EvaluationError(f"The first {_MAX_FAILURES} images all failed; the last one: {outcome}") from None
    elif isinstance(outcome, BaseException):
        raise outcome
    else:
        done.records[item.id] = outcome
