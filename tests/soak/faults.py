"""What is done to the server while it answers, and what that accounts for."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from tests.soak.ledger import Window
from tests.soak.run import Run

__all__ = ("Cause", "Fault", "cause")

Cause = Callable[[Run, random.Random], Awaitable[None]]
"""Does it, and undoes it."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault.

    Attributes:
        group: two of one group are never caused together.
        cause: does it, and undoes it.
        statuses: of the refusals that it accounts for.
        models: of whose requests; None for all of them.
        unanswered: whether requests may go without an answer meanwhile.
        severed: whether those may, too, that had been read before.
        probed: models that have to answer for the server to have recovered.
    """

    group: str
    cause: Cause
    statuses: frozenset[int] = frozenset()
    models: frozenset[str] | None = None
    unanswered: bool = False
    severed: bool = False
    probed: Sequence[str] = ("half_plus_two",)


async def cause(run: Run, faults: Mapping[str, Fault], kinds: Sequence[str], chance: random.Random) -> None:
    """Cause these together, wait until the server has recovered from all of them, and note the times."""
    await asyncio.gather(*(_one(run, kind, faults[kind], chance, alone=len(kinds) == 1) for kind in kinds))


async def _one(run: Run, kind: str, fault: Fault, chance: random.Random, *, alone: bool) -> None:
    began = time.monotonic()
    try:
        await fault.cause(run, chance)
    except Exception as error:  # noqa: BLE001  one fault that could not be caused is a finding, not the end of the run
        run.find(f"{kind}: {type(error).__name__}: {error}")
    undone = time.monotonic()
    recovered = await run.until_ready(fault.probed)
    again = time.monotonic()
    if not recovered:
        run.find(f"{kind}: the server did not recover: {run.amiss}")
    await run.caught_up()
    run.ledger.windows.append(
        Window(
            kind=kind,
            began=began,
            ended=time.monotonic(),
            statuses=fault.statuses,
            models=fault.models,
            unanswered=fault.unanswered,
            severed=fault.severed,
            recovery=again - undone if recovered else None,
            alone=alone,
        )
    )
