"""Define faults, inject them, and record which refusals they explain."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from tests.soak.ledger import Window
from tests.soak.run import Run

Cause = Callable[[Run, random.Random], Awaitable[None]]
"""Injects a fault, and reverts it."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault.

    Attributes:
        group: two faults of a group never run together.
        cause: injects the fault, and reverts it.
        statuses: statuses of requests that the fault may cause.
        models: models whose requests may fail; None for all.
        unanswered: whether requests may get no answer.
        severed: whether this includes requests that were read before the fault.
        probed: models that must answer before the server counts as recovered.
    """

    group: str
    cause: Cause
    statuses: frozenset[int] = frozenset()
    models: frozenset[str] | None = None
    unanswered: bool = False
    severed: bool = False
    probed: Sequence[str] = ("half_plus_two",)


async def cause(run: Run, faults: Mapping[str, Fault], kinds: Sequence[str], chance: random.Random) -> None:
    """Inject faults together, wait until the server has recovered, and record the times."""
    await asyncio.gather(*(_cause_one(run, kind, faults[kind], chance, alone=len(kinds) == 1) for kind in kinds))


async def _cause_one(run: Run, kind: str, fault: Fault, chance: random.Random, *, alone: bool) -> None:
    started = time.monotonic()
    try:
        await fault.cause(run, chance)
    except Exception as error:  # noqa: BLE001  a fault that cannot be injected is a finding; the run continues
        run.add_finding(f"{kind}: {type(error).__name__}: {error}")
    reverted = time.monotonic()
    recovered = await run.until_ready(fault.probed)
    ready = time.monotonic()
    if not recovered:
        run.add_finding(f"{kind}: the server did not recover: {run.not_ready_reason}")
    await run.wait_until_few_open()
    run.ledger.windows.append(
        Window(
            kind=kind,
            started=started,
            ended=time.monotonic(),
            statuses=fault.statuses,
            models=fault.models,
            unanswered=fault.unanswered,
            severed=fault.severed,
            recovery=ready - reverted if recovered else None,
            alone=alone,
        )
    )
