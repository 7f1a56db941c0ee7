"""Request an answer for every item of a dataset, several at once."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from app.clients.protocol import InferenceClientError, Records
from app.clients.threads import map_in_threads
from app.plugins.evaluation.dataset import EvaluationError, Item

InferenceClient = Callable[[Item, bytes], Records]
"""Returns the records for an item and the bytes of its image, or raises InferenceClientError without an answer.

Several threads call it.
"""

_MAX_FAILURES = 10
"""Number of failures before the first success that end the evaluation."""


@dataclass(slots=True)
class CollectedAnswers:
    """The records, or the reason for a failure, by the id of the item.

    `source` is a readable description of the model, and `notes` are sentences about the answers.
    """

    records: dict[str, Records] = field(default_factory=dict[str, Records])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    source: str = ""
    notes: Sequence[str] = ()


def collect_answers(
    items: Sequence[Item], client: InferenceClient, concurrency: int, progress: Callable[[int], None]
) -> CollectedAnswers:
    """Request answers for all items; call `progress` with the number of items so far.

    Raise EvaluationError when the first requests or all requests fail. Other errors of `client` propagate.
    """
    collected = CollectedAnswers()

    def answer(item: Item) -> Records | InferenceClientError:
        try:
            return client(item, item.image.read_bytes())
        except OSError as error:
            return InferenceClientError(f"{item.image} cannot be read: {error.strerror}")
        except InferenceClientError as error:
            return error

    with closing(map_in_threads(answer, items, min(concurrency, len(items)))) as outcomes:
        for item, outcome in zip(items, outcomes, strict=True):
            if not isinstance(outcome, InferenceClientError):
                collected.records[item.id] = outcome
            else:
                collected.failures[item.id] = str(outcome)
                if not collected.records and len(collected.failures) >= _MAX_FAILURES:
                    raise EvaluationError(f"The first {_MAX_FAILURES} images all failed; the last one: {outcome}")
            progress(len(collected.records) + len(collected.failures))
    if not collected.records and collected.failures:
        name, reason = next(iter(collected.failures.items()))
        raise EvaluationError(f"Not one of {len(items)} images was answered; {name}: {reason}")
    return collected
