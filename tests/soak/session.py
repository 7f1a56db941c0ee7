"""A run from its first folder to its last table."""

import asyncio
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop

from tests.benchmarks.serving.section import Section
from tests.soak.faults import Fault, cause
from tests.soak.kinds import ALONE, RESTARTS, faults
from tests.soak.over_grpc import numbers_over_grpc, pictures_over_grpc, questions_over_grpc
from tests.soak.over_http import explanations, numbers_over_http, pictures_over_http, questions_over_http
from tests.soak.plan import scheduled
from tests.soak.reads import reads
from tests.soak.references import References
from tests.soak.report import failures, sections
from tests.soak.run import Run
from tests.soak.server import Server
from tests.soak.shelf import PICTURED, Shelf
from tests.soak.store import kept
from tests.soak.traffic import NUMBERED, Material, Shot

__all__ = ("Options", "Result", "kinds", "soak")

_WEIGHTS: Mapping[str, float] = {"classifier": 1.0, "detector": 0.5, "oriented-detector": 0.2, "segmenter": 0.2}
"""Weights of the image models, by the cost of their answers."""
_NOTICED = 1.0
"""Seconds in which a server has noticed that connections were closed."""
_RESTARTED = 0.5
"""The share of a run in which the server is restarted: the process that is there then is watched for the rest of it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run.

    Attributes:
        seconds: that traffic and faults go on for.
        seed: decides their order.
        load: the share of what the machine can do that is offered.
        rate: requests a second in its place.
        pause: seconds between faults.
        measured: seconds in which what the machine can do is found out.
        only: kinds of faults; all of them when empty.
    """

    seconds: float
    seed: int
    load: float = 0.5
    rate: float | None = None
    pause: float = 4.0
    measured: float = 6.0
    only: Sequence[str] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    Attributes:
        rate: requests a second that were offered.
        held_back: requests that were due, but not sent because too many were open.
        sections: tables.
        failures: sentences; none for a run that passed.
        tracebacks: some of those in the server's log.
    """

    rate: float
    held_back: int
    sections: Sequence[Section]
    failures: Sequence[str]
    tracebacks: Sequence[str]


def kinds() -> Sequence[str]:
    """The faults that there are."""
    return list(faults(Path()))


def soak(options: Options, log: Path) -> Result:
    """Start a server, and have it out with it.

    Args:
        options: what is wanted.
        log: a file for what the server logs beside ordinary lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shelf = Shelf(place / "models")
        references = References(shelf.folder, PICTURED, ["vlm"])
        material = Material(references, shelf)
        store = place / "inferences.db"
        server = Server(shelf.folder, store, log, ["--allow-code"])
        try:
            run, rate = uvloop.run(_under_way(options, server, shelf, material, store))
            status = server.stop()
        finally:
            server.stop()
        if status != 0:
            run.find(f"At the end the server ended with {status}, not 0")
        found = kept(store, run.ledger.acknowledged())
        return Result(
            rate=rate,
            held_back=run.held_back,
            sections=sections(run.ledger, run.usages, server, found),
            failures=failures(run.ledger, run.findings, server, found),
            tracebacks=server.tracebacks,
        )


def _shots(material: Material) -> Sequence[Shot]:
    found: list[Shot] = []
    for model, weight in _WEIGHTS.items():
        shots = [*pictures_over_http(material, model), *pictures_over_grpc(material, model)]
        found += [msgspec.structs.replace(shot, weight=shot.weight * weight) for shot in shots]
    for model in NUMBERED:
        found += [*numbers_over_http(material, model), *numbers_over_grpc(material, model)]
    found += [*questions_over_http(material), *questions_over_grpc(material)]
    return [*found, *explanations(material), *reads()]


async def _under_way(
    options: Options, server: Server, shelf: Shelf, material: Material, store: Path
) -> tuple[Run, float]:
    run = Run(server, shelf, material, _shots(material), options.seed)
    server.start()
    if not await run.until_ready(NUMBERED):
        raise RuntimeError(f"The server did not become ready: {run.amiss}")
    rate = options.rate or await run.capacity(options.measured) * options.load
    known = faults(store)
    chosen = {kind: fault for kind, fault in known.items() if not options.only or kind in options.only}
    watching = asyncio.create_task(run.watch())
    offering = asyncio.create_task(run.offer(rate))
    try:
        await _faults(run, chosen, options)
    finally:
        run.over = True
        await offering
        await run.drained()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await run.wire.close()
        await asyncio.sleep(_NOTICED)
        if (usage := server.usage(len(run.ledger.entries))) is not None:
            run.usages.append(usage)
    return run, rate


async def _faults(run: Run, known: Mapping[str, Fault], options: Options) -> None:
    """One turn after another until the time is over and every kind has come; the last one is waited for."""
    chance = random.Random(options.seed)
    began = time.monotonic()
    groups = {kind: fault.group for kind, fault in known.items()}
    later = {kind: group for kind, group in groups.items() if kind not in RESTARTS} or groups
    turns = scheduled(groups, options.seed, alone=ALONE)
    steady, unseen = False, set(known)
    await asyncio.sleep(options.pause)
    while (elapsed := time.monotonic() - began) < options.seconds or unseen:
        if not steady and not unseen and elapsed > options.seconds * _RESTARTED:
            steady, turns = True, scheduled(later, options.seed + 1, alone=ALONE)
        turn = next(turns)
        unseen -= set(turn)
        print(f"{elapsed:6.0f} s  {' + '.join(turn)}", flush=True)
        await cause(run, known, turn, chance)
        await asyncio.sleep(options.pause)
