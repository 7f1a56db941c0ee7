"""Gauges of how many answers were right, as far as truths say."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import Connection, func, select

from app.core.server.process_setup import running
from app.plugins.recording.stores.tables import inferences, truths

_MAX_TRUTHS = 1000
_SECONDS = 60.0

_logger = logging.getLogger(__name__)

Verdicts = Mapping[tuple[str, str], Mapping[str, int]]
"""The number of right and wrong answers, by model and version."""


@asynccontextmanager
async def accuracy_gauges(registry: CollectorRegistry, read: Callable[[], Awaitable[Verdicts]]) -> AsyncGenerator[None]:
    """While entered, read verdicts each minute, and show them as gauges."""
    labels = ["model", "version"]
    accuracy = Gauge(
        "charioteer_truth_accuracy",
        f"Share of right answers among the last {_MAX_TRUTHS} sampled inferences with a truth.",
        labels,
        registry=registry,
    )
    labelled = Gauge(
        "charioteer_truth_labelled",
        f"Number of these inferences, at most {_MAX_TRUTHS} in all.",
        labels,
        registry=registry,
    )

    async def update() -> None:
        while True:
            try:
                verdicts = await read()
                accuracy.clear()
                labelled.clear()
                for model, counts in verdicts.items():
                    accuracy.labels(*model).set(counts.get("right", 0) / sum(counts.values()))
                    labelled.labels(*model).set(sum(counts.values()))
            except Exception as error:  # noqa: BLE001  the store may work again later
                _logger.warning("the accuracy cannot be read", extra={"reason": str(error)})
            await asyncio.sleep(_SECONDS)

    async with running(update()):
        yield


def count_verdicts(connection: Connection) -> Verdicts:
    """Count the verdicts of the newest sampled inferences with a truth, by model and version.

    Only the random sample counts: rules select inferences whose answers are wrong more often than others.
    """
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
