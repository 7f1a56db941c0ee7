"""Gauges of how many answers were right, as far as truths say."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import Connection, func, select

from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.stores.tables import inferences, truths

_MAX_TRUTHS = 1000
_SECONDS = 60.0

_logger = logging.getLogger(__name__)

Verdicts = Mapping[tuple[str, str], Mapping[str, int]]
"""The number of right and wrong answers, by model and version."""


class TruthGauges:
    """Count the verdicts of the newest inferences that have a truth.

    Only the random sample counts: rules select inferences whose answers are wrong more often than others.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["model", "version"]
        self._accuracy = Gauge(
            "charioteer_truth_accuracy",
            f"Share of right answers among the last {_MAX_TRUTHS} sampled inferences with a truth.",
            labels,
            registry=registry,
        )
        self._labelled = Gauge(
            "charioteer_truth_labelled",
            f"Number of these inferences, at most {_MAX_TRUTHS} in all.",
            labels,
            registry=registry,
        )

    @staticmethod
    def read(store: TruthStore) -> Verdicts:
        """Return the verdicts in a store.

        Raises:
            InferenceError: when it cannot be read.
        """
        return store.run(count_verdicts)

    def show(self, verdicts: Verdicts) -> None:
        """Set the gauges."""
        self._accuracy.clear()
        self._labelled.clear()
        for model, counts in verdicts.items():
            total = sum(counts.values())
            self._accuracy.labels(*model).set(counts.get("right", 0) / total)
            self._labelled.labels(*model).set(total)

    @asynccontextmanager
    async def updating(
        self, read: Callable[[], Awaitable[Verdicts]], seconds: float = _SECONDS
    ) -> AsyncGenerator[None]:
        """While entered, read verdicts and set the gauges, at once and every `seconds`."""

        async def update() -> None:
            while True:
                try:
                    self.show(await read())
                except Exception as error:  # noqa: BLE001  the store may work again later
                    _logger.warning("the accuracy cannot be read", extra={"reason": str(error)})
                await asyncio.sleep(seconds)

        task = asyncio.create_task(update())
        try:
            yield
        finally:
            task.cancel()


def count_verdicts(connection: Connection) -> Verdicts:
    """Count the verdicts of the newest sampled inferences with a truth, by model and version."""
    newest = (
        select(inferences.c.model, inferences.c.version, truths.c.verdict)
        .join(truths, truths.c.number == inferences.c.number)
        .where(truths.c.current, inferences.c.reason.is_(None))
        .order_by(truths.c.number.desc())
        .limit(_MAX_TRUTHS)
        .subquery()
    )
    statement = select(newest, func.count()).group_by(newest.c.model, newest.c.version, newest.c.verdict)
    counts: dict[tuple[str, str], Counter[str]] = {}
    for model, version, verdict, count in connection.execute(statement):
        counts.setdefault((model, version), Counter())[verdict] = count
    return counts
