"""Putting every item to whoever answers, several at once, and writing the answers down."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from app.evaluation.dataset import Item
from app.evaluation.extras import EvaluationError
from app.evaluation.journal import Journal, Records, Told

__all__ = ("Asker", "AskingError", "Collected", "collect")

Asker = Callable[[Item, bytes], Records]
"""Gives the records for an item, of which it gets the bytes of the image. Called from several threads.

Raises:
    AskingError: when there are none.
"""

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

    When it is interrupted, what was answered by then is in the journal.

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
    with ThreadPoolExecutor(max_workers=concurrency) as threads:
        waiting: dict[Future[Records], Item] = {}
        remaining = iter(items)
        try:
            while True:
                for item in remaining:
                    waiting[threads.submit(_one, item, ask, book)] = item
                    if len(waiting) >= 2 * concurrency:
                        break
                if not waiting:
                    break
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for each in finished:
                    _take(each, waiting.pop(each), done)
                progress(len(done.records) + len(done.failures))
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
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


def _take(finished: Future[Records], item: Item, done: Collected) -> None:
    try:
        done.records[item.id] = finished.result()
    except AskingError as error:
        done.failures[item.id] = str(error)
        if not done.records and len(done.failures) >= _MOST_IN_VAIN:
            raise EvaluationError(f"The first {_MOST_IN_VAIN} images all failed; the last one: {error}") from None
