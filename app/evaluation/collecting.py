"""Putting every item to whoever answers, several at once, and writing the answers down."""

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
"""Gives the records for an item, of which it gets the bytes of the image. Called from several threads.

Raises:
    AskingError: when there are none.
"""

_Outcome = tuple[Item, Records | BaseException]
_GRACE_S = 2.0
"""So long the answers that are on their way are waited for, when the rest is not wanted any more."""
_MOST_IN_VAIN = 10
"""So many failures before the first success end the evaluation: nobody is there, or nothing fits."""


class AskingError(Exception):
    """One item was not answered, with the reason."""


@dataclass(slots=True)
class Collected:
    """What came of asking.

    Attributes:
        records: by the id of the item.
        failures: why an item has none.
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
    """Ask about every item that the journal has no answer to, or whose image has changed since.

    When it is interrupted, what was answered by then is in the journal; answers that come within two seconds are too.

    Args:
        items: to ask about.
        ask: answers.
        book: where answers are written.
        concurrency: how many at once.
        progress: is told how many items are done.

    Raises:
        EvaluationError: when the first ones, or all, fail; and what `ask` raises besides.
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
            except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the answer
                stopping.set()
                outcomes.put((item, error))

    # Daemons, so that a server that does not answer keeps nobody from ending.
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
        last = time.monotonic() + _GRACE_S
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
        if not done.records and len(done.failures) >= _MOST_IN_VAIN:
            raise EvaluationError(f"The first {_MOST_IN_VAIN} images all failed; the last one: {outcome}") from None
    elif isinstance(outcome, BaseException):
        raise outcome
    else:
        done.records[item.id] = outcome
