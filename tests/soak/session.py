"""Run the complete soak test: set up, traffic, faults, report."""

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
from tests.soak.model_repository import IMAGE_MODELS, ModelRepository
from tests.soak.over_grpc import images_over_grpc, numbers_over_grpc, questions_over_grpc
from tests.soak.over_http import explanations, images_over_http, numbers_over_http, questions_over_http
from tests.soak.plan import fault_schedule
from tests.soak.reads import other_requests
from tests.soak.references import References
from tests.soak.report import failures, sections
from tests.soak.run import Run
from tests.soak.server import Server
from tests.soak.store import check_store
from tests.soak.traffic import NUMBER_MODELS, RequestKind, RequestMaterial

_WEIGHTS: Mapping[str, float] = {"classifier": 1.0, "detector": 0.5, "oriented-detector": 0.2, "segmenter": 0.2}
"""Weights of the image models, by the cost of their answers."""
_CLOSE_SECONDS = 1.0
"""Seconds until a server has noticed closed connections."""
_RESTART_SHARE = 0.5
"""The share of a run with restarts; afterwards one process is watched for memory growth."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run.

    Attributes:
        seconds: duration of traffic and faults.
        seed: determines their order.
        load: offered load, as a share of the measured capacity.
        rate: requests a second, instead of `load`.
        pause: seconds between faults.
        measured: seconds in which the capacity is measured.
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
    """The result of a run.

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
    """Return the names of all faults."""
    return list(faults(Path()))


def soak(options: Options, log: Path) -> Result:
    """Start a server, and test it under traffic and faults.

    Args:
        options: options of the run.
        log: file for the server's log, without lines of level info.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        repository = ModelRepository(root / "models")
        references = References(repository.folder, IMAGE_MODELS, ["vlm"])
        material = RequestMaterial(references, repository)
        store = root / "inferences.db"
        server = Server(repository.folder, store, log, ["--allow-code"])
        try:
            run, rate = uvloop.run(_run(options, server, repository, material, store))
            status = server.stop()
        finally:
            server.stop()
        if status != 0:
            run.add_finding(f"At the end the server ended with {status}, not 0")
        store_report = check_store(store, run.ledger.acknowledged())
        return Result(
            rate=rate,
            held_back=run.held_back,
            sections=sections(run.ledger, run.usages, server, store_report),
            failures=failures(run.ledger, run.findings, server, store_report),
            tracebacks=server.tracebacks,
        )


def _request_kinds(material: RequestMaterial) -> Sequence[RequestKind]:
    request_kinds: list[RequestKind] = []
    for model, weight in _WEIGHTS.items():
        of_model = [*images_over_http(material, model), *images_over_grpc(material, model)]
        request_kinds += [msgspec.structs.replace(kind, weight=kind.weight * weight) for kind in of_model]
    for model in NUMBER_MODELS:
        request_kinds += [*numbers_over_http(material, model), *numbers_over_grpc(material, model)]
    request_kinds += [*questions_over_http(material), *questions_over_grpc(material)]
    return [*request_kinds, *explanations(material), *other_requests()]


async def _run(
    options: Options, server: Server, repository: ModelRepository, material: RequestMaterial, store: Path
) -> tuple[Run, float]:
    run = Run(server, repository, material, _request_kinds(material), options.seed)
    server.start()
    if not await run.until_ready(NUMBER_MODELS):
        raise RuntimeError(f"The server did not become ready: {run.not_ready_reason}")
    rate = options.rate or await run.capacity(options.measured) * options.load
    all_faults = faults(store)
    selected = {kind: fault for kind, fault in all_faults.items() if not options.only or kind in options.only}
    watching = asyncio.create_task(run.watch())
    offering = asyncio.create_task(run.offer(rate))
    try:
        await _faults(run, selected, options)
    finally:
        run.over = True
        await offering
        await run.wait_until_answered()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await run.wire.close()
        await asyncio.sleep(_CLOSE_SECONDS)
        if (usage := server.usage(len(run.ledger.entries))) is not None:
            run.usages.append(usage)
    return run, rate


async def _faults(run: Run, all_faults: Mapping[str, Fault], options: Options) -> None:
    """Inject faults until the time is over and every kind has run."""
    chance = random.Random(options.seed)
    started = time.monotonic()
    groups = {kind: fault.group for kind, fault in all_faults.items()}
    steady_groups = {kind: group for kind, group in groups.items() if kind not in RESTARTS} or groups
    turns = fault_schedule(groups, options.seed, alone=ALONE)
    steady, not_yet_caused = False, set(all_faults)
    await asyncio.sleep(options.pause)
    while (elapsed := time.monotonic() - started) < options.seconds or not_yet_caused:
        if not steady and not not_yet_caused and elapsed > options.seconds * _RESTART_SHARE:
            steady, turns = True, fault_schedule(steady_groups, options.seed + 1, alone=ALONE)
        turn = next(turns)
        not_yet_caused -= set(turn)
        print(f"{elapsed:6.0f} s  {' + '.join(turn)}", flush=True)
        await cause(run, all_faults, turn, chance)
        await asyncio.sleep(options.pause)
