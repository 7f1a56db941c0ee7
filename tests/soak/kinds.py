"""Define the faults of a run, by name: of models, process, store, load and log."""

import asyncio
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

from app.plugins.grps.proto import message_class
from tests.soak.faults import Fault
from tests.soak.ledger import SERVER
from tests.soak.misbehaviours import MISBEHAVIOURS
from tests.soak.model_repository import BREAKABLE, ISOLATED, MOVABLE, POISON, REPLACED, UNLOADED
from tests.soak.run import Run
from tests.soak.wire import Answer

ALONE = ("process",)
"""Groups whose faults run alone, because a stopped server cannot show the effect of another fault."""
RESTARTS = ("SIGTERM and restart", "SIGKILL and restart")

_LoadRequest = message_class("inference.RepositoryModelLoadRequest")
_UnloadRequest = message_class("inference.RepositoryModelUnloadRequest")
_Grps = message_class("grps.protos.v1.GrpsMessage")
_POLL_SECONDS = 2.5
"""Seconds until the server has seen a change of the repository, which it polls every second."""
_UNAVAILABLE = frozenset({404, 503})
_BUSY = 429
_NOT_READY = 503
_TIMEOUT_SECONDS = 20.0


def faults(store: Path) -> Mapping[str, Fault]:
    """Return every fault, by name.

    Args:
        store: the file that inferences are recorded in.
    """
    not_recorded = frozenset({503, _BUSY})
    return {
        "models reloaded": Fault(group="models", cause=_reload),
        "model unloaded and loaded": Fault(
            group="models", cause=_unload, statuses=_UNAVAILABLE, models=frozenset({UNLOADED}), probed=[UNLOADED]
        ),
        "model replaced and back": Fault(group="models", cause=_replace, probed=[REPLACED]),
        "model's file broken and mended": Fault(group="models", cause=_break, probed=[BREAKABLE]),
        "model's folder gone and back": Fault(
            group="models", cause=_move, statuses=_UNAVAILABLE, models=frozenset({MOVABLE}), probed=[MOVABLE]
        ),
        "offline and online": Fault(
            group="models", cause=_offline, statuses=frozenset({503}), models=frozenset({SERVER})
        ),
        "five times the load": Fault(group="load", cause=_burst, statuses=frozenset({_BUSY})),
        "SIGTERM and restart": Fault(group="process", cause=_terminate, statuses=frozenset({503}), unanswered=True),
        "SIGKILL and restart": Fault(
            group="process", cause=_kill, statuses=frozenset({503}), unanswered=True, severed=True
        ),
        "SIGSTOP for two seconds": Fault(group="process", cause=_pause, statuses=frozenset({_BUSY})),
        "disk full": Fault(group="store", cause=_fill, statuses=not_recorded),
        "store locked": Fault(group="store", cause=lambda run, _: _lock(run, store), statuses=not_recorded),
        "log not read": Fault(group="log", cause=_stall),
        "isolated model crashes": Fault(
            group="isolated",
            cause=_crash,
            statuses=frozenset({503}),
            models=frozenset({ISOLATED, SERVER}),
            probed=[ISOLATED],
        ),
        **{kind: Fault(group="clients", cause=misbehave) for kind, misbehave in MISBEHAVIOURS.items()},
    }


async def _reload(run: Run, chance: random.Random) -> None:
    for model in chance.sample(["half_plus_two", "classifier", "detector", "vlm"], 3):
        _require_success(f"reloading {model}", await _load(run, model, rpc=chance.random() < 0.5))


async def _unload(run: Run, chance: random.Random) -> None:
    if chance.random() < 0.5:
        message = _UnloadRequest(model_name=UNLOADED).SerializeToString()
        answer = await run.wire.call("/inference.GRPCInferenceService/RepositoryModelUnload", message)
    else:
        answer = await run.wire.http("POST", f"/v2/repository/models/{UNLOADED}/unload")
    _require_success("unloading", answer)
    await asyncio.sleep(1)
    _require_success("loading", await _load(run, UNLOADED, rpc=chance.random() < 0.5))


async def _replace(run: Run, chance: random.Random) -> None:
    del chance
    for addend in ("three", "two"):
        run.repository.replace(addend)
        await _wait_for_addend(run, addend)
        run.repository.finish_replacement(addend)
        await asyncio.sleep(1)


async def _wait_for_addend(run: Run, addend: str) -> None:
    """Wait until the model that replaces another is the one that answers."""
    expected = {"two": b"2.0", "three": b"3.0"}[addend]
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0]}]}'
    end = time.monotonic() + _TIMEOUT_SECONDS
    while (
        expected not in (await run.wire.http("POST", f"/v2/models/{REPLACED}/infer", body)).body.partition(b"data")[2]
    ):
        if time.monotonic() > end:
            raise TimeoutError(f"half_plus_{addend} does not answer after {_TIMEOUT_SECONDS:.0f} s")
        await asyncio.sleep(0.05)


async def _break(run: Run, chance: random.Random) -> None:
    content = (run.repository.folder / BREAKABLE / "model.onnx").read_bytes()
    run.repository.break_file(chance.choice([b"", content[: len(content) // 2], chance.randbytes(1000), b"{}" * 50]))
    await asyncio.sleep(_POLL_SECONDS)
    run.repository.restore_file()
    await asyncio.sleep(_POLL_SECONDS)


async def _move(run: Run, chance: random.Random) -> None:
    del chance
    run.repository.hide_folder()
    await asyncio.sleep(_POLL_SECONDS)
    run.repository.show_folder()


async def _offline(run: Run, chance: random.Random) -> None:
    rpc = chance.random() < 0.5
    for flag in ("offline", "online"):
        if rpc:
            answer = await run.wire.call(f"/grps.protos.v1.GrpsService/{flag.title()}", _Grps().SerializeToString())
        else:
            answer = await run.wire.http("POST", f"/grps/v1/health/{flag}")
        _require_success(flag, answer)
        ready = (await run.wire.http("GET", "/ready")).status
        if flag == "offline" and ready != _NOT_READY:
            run.add_finding(f"{flag}: /ready answered {ready}")
        await asyncio.sleep(1)


async def _burst(run: Run, chance: random.Random) -> None:
    run.factor = 5.0
    try:
        await asyncio.sleep(chance.uniform(2, 5))
    finally:
        run.factor = 1.0


async def _terminate(run: Run, chance: random.Random) -> None:
    del chance
    await _restart(run, signal.SIGTERM, 0)


async def _kill(run: Run, chance: random.Random) -> None:
    del chance
    await _restart(run, signal.SIGKILL, -signal.SIGKILL)


async def _restart(run: Run, number: int, expected: int) -> None:
    run.restarting = True
    try:
        run.server.signal(number)
        status = await asyncio.to_thread(run.server.wait)
        if status != expected:
            run.add_finding(f"After {signal.Signals(number).name} the server ended with {status}, not {expected}")
        run.wire.close_idle()
        run.server.start()
        await _wait_until_listening(run)
    finally:
        run.restarting = False


async def _wait_until_listening(run: Run) -> None:
    end = time.monotonic() + _TIMEOUT_SECONDS
    while (await run.wire.http("GET", "/health")).status != 200 and time.monotonic() < end:
        await asyncio.sleep(0.02)


async def _pause(run: Run, chance: random.Random) -> None:
    del chance
    run.server.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(2)
    finally:
        run.server.signal(signal.SIGCONT)


async def _fill(run: Run, chance: random.Random) -> None:
    """Limit the file size of the process to one byte, so that writes fail as on a full disk."""
    pid = run.server.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        await asyncio.sleep(chance.uniform(1, 3))
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    await asyncio.sleep(0.5)


async def _lock(run: Run, store: Path) -> None:
    """Lock the store for longer than the server waits."""
    del run
    connection = sqlite3.connect(store, isolation_level=None, timeout=10, check_same_thread=False)
    try:
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        await asyncio.sleep(4)
        connection.execute("ROLLBACK")
    finally:
        connection.close()


async def _stall(run: Run, chance: random.Random) -> None:
    run.server.stall_log()
    try:
        await asyncio.sleep(chance.uniform(3, 6))
    finally:
        run.server.read_log()


async def _crash(run: Run, chance: random.Random) -> None:
    del chance
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [%d]}]}' % POISON
    answer = await run.wire.http("POST", f"/v2/models/{ISOLATED}/infer", body)
    if answer.status != 503:
        run.add_finding(f"A model that ended its process was answered for with {answer.status}: {answer.body[:200]!r}")


async def _load(run: Run, model: str, *, rpc: bool) -> Answer:
    if rpc:
        message = _LoadRequest(model_name=model).SerializeToString()
        return await run.wire.call("/inference.GRPCInferenceService/RepositoryModelLoad", message)
    return await run.wire.http("POST", f"/v2/repository/models/{model}/load")


def _require_success(action: str, answer: Answer) -> None:
    if answer.status != 200:
        raise RuntimeError(f"{action} was answered with {answer.status}: {answer.note or answer.body[:200]!r}")
