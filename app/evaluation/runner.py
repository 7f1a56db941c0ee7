"""Request an answer for every item, several at once, and write the answers to the checkpoint."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Event, Thread

from app.evaluation.checkpoint import Checkpoint, CheckpointEntry, Records
from app.evaluation.dataset import EvaluationError, Item

InferenceClient = Callable[[Item, bytes], Records]
"""Returns the records for an item and the bytes of its image. Several threads call it.

Raises:
    InferenceClientError: when there is no answer.
"""

_Outcome = tuple[Item, Records | BaseException]
_GRACE_SECONDS = 2.0
"""Seconds to wait for requests in flight after an interruption."""
_MAX_FAILURES = 10
"""Number of failures before the first success that end the evaluation."""


class InferenceClientError(Exception):
    """One item was not answered, with the reason."""


@dataclass(slots=True)
class CollectedAnswers:
    """The answers for a dataset.

    Attributes:
        records: records by the id of the item.
        failures: reasons by the id of the item.
    """

    records: dict[str, Records] = field(default_factory=dict[str, Records])
    failures: dict[str, str] = field(default_factory=dict[str, str])


def collect_answers(
    items: Sequence[Item],
    client: InferenceClient,
    checkpoint: Checkpoint,
    *,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> CollectedAnswers:
    """Request answers for items without an answer in the checkpoint, and for items whose image has changed.

    After an interruption, the checkpoint contains all answers so far, and those that arrive within two seconds.

    Raises:
        EvaluationError: when the first requests or all requests fail. Other errors of `client` propagate.
    """
    collected = CollectedAnswers()
    pending, outcomes, stopping = SimpleQueue[Item | None](), SimpleQueue[_Outcome](), Event()
    remaining = iter(items)
    for item in islice(remaining, 2 * concurrency):
        pending.put(item)

    def work() -> None:
        while (item := pending.get()) is not None and not stopping.is_set():
            try:
                outcomes.put((item, _answer_item(item, client, checkpoint)))
            except InferenceClientError as error:
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
            _record_outcome(*outcomes.get(), collected)
            progress(len(collected.records) + len(collected.failures))
            pending.put(next(remaining, None))
    finally:
        stopping.set()
        for _ in threads:
            pending.put(None)
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in threads:
            # An interruption may come before all threads have started.
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
    if not collected.records and collected.failures:
        name, reason = next(iter(collected.failures.items()))
        raise EvaluationError(f"Not one of {len(items)} images was answered; {name}: {reason}")
    return collected


def _answer_item(item: Item, client: InferenceClient, checkpoint: Checkpoint) -> Records:
    try:
        data = item.image.read_bytes()
    except OSError as error:
        raise InferenceClientError(f"{item.image} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(data).hexdigest()
    entries: Mapping[str, CheckpointEntry] = checkpoint.entries
    if item.id in entries and entries[item.id].digest == digest:
        return entries[item.id].records
    records = client(item, data)
    checkpoint.add(CheckpointEntry(id=item.id, digest=digest, records=records))
    return records


def _record_outcome(item: Item, outcome: Records | BaseException, collected: CollectedAnswers) -> None:
    if isinstance(outcome, InferenceClientError):
        collected.failures[item.id] = str(outcome)
        if not collected.records and len(collected.failures) >= _MAX_FAILURES:
            raise EvaluationError(f"The first {_MAX_FAILURES} images all failed; the last one: {outcome}") from None
    elif isinstance(outcome, BaseException):
        raise outcome
    else:
        collected.records[item.id] = outcome
