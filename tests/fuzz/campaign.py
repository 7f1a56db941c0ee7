"""A campaign: shares of requests, each against a server of its own, sent by several processes."""

import contextlib
import multiprocessing
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import msgspec

from tests.fuzz.cases import cases
from tests.fuzz.generation import Fuzzed, generated
from tests.fuzz.requests import Call, Http, Port
from tests.fuzz.sending import Outcome, Sender
from tests.fuzz.served import write_models
from tests.fuzz.server import addresses_of, faults_in, fuzzed_server, resident_bytes
from tests.fuzz.tally import Finding, ShareReport, Tally, saved
from tests.support.server_process import ServerProcess

__all__ = ("SAMPLED", "SHARES", "Campaign", "Share", "known_good", "sent_chunk")

CHUNK = 250
"""Requests after which requests that are right have to be answered as before."""

SAMPLED = 5000
"""Requests after which the memory of the server is measured."""

_KNOWN_GOOD = (
    "chariot-v2-kserve/detection", "kserve-v2/tensor-json", "kserve-v1/tensor-instances",
    "tensorflow-serving/predict-row", "grps/gtensors-float32",
    "grpc/picture", "grpc/bin_data",
)  # fmt: skip
_KNOWN_GOOD_LEAN = ("chariot-v2/detection", "tensorflow-serving/predict-row", "grpc/picture")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a campaign.

    Attributes:
        name: for reports and files.
        part: of all requests.
        protocols: whose cases are mutated; all when empty.
        arguments: of the server; `OUT` stands for the share's folder.
    """

    name: str
    part: float
    protocols: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


SHARES = (
    Share(name="everything", part=0.6),
    Share(name="recording", part=0.25, arguments=("--record", "OUT/inferences.db", "--record-images", "OUT/images")),
    Share(
        name="chariot-v2",
        part=0.15,
        protocols=("chariot-v2", "chariot-v2-kserve", "kserve-v2", "kserve-v2-grpc", "routes"),
        arguments=("--chariot-protocol", "chariot-v2"),
    ),
)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for.

    Attributes:
        seed: of the requests.
        first: the number of the first of them.
        requests: how many of them, at most.
        seconds: how long, at most.
        processes: that send them.
        folder: where findings and logs go.
        shares: which parts.
    """

    seed: int
    first: int = 0
    requests: int
    seconds: float
    processes: int
    folder: Path
    shares: tuple[Share, ...] = SHARES

    def run(self) -> list[ShareReport]:
        """Run it, and save what was found."""
        self.folder.mkdir(parents=True, exist_ok=True)
        models = self.folder / "models"
        write_models(models)
        until = time.monotonic() + self.seconds
        reports: list[ShareReport] = []
        start = self.first
        for share in self.shares:
            count = round(self.requests * share.part)
            reports.append(self._run(share, models, range(start, start + count), until))
            start += count
        return reports

    def _run(self, share: Share, models: Path, indexes: range, until: float) -> ShareReport:
        folder = self.folder / share.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        arguments = [argument.replace("OUT", str(folder)) for argument in share.arguments]
        with (
            fuzzed_server(models, arguments) as server,
            ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn")) as pool,
        ):
            start = time.monotonic()
            tally, resident = Tally(), [resident_bytes(server)]
            for at in range(0, len(indexes), SAMPLED):
                tally.merge(self._sent(pool, server, share, indexes[at : at + SAMPLED], until))
                resident.append(resident_bytes(server))
            seconds = time.monotonic() - start
            saved(folder, tally.findings)
            status = server.stop()
        (folder / "server.log").write_text("".join(server.log))
        faults = faults_in(server.log)
        faults.update(_store_faults(folder / "inferences.db"))
        if status:
            faults[f"the server ended with status {status}"] += 1
        return ShareReport(name=share.name, tally=tally, seconds=seconds, resident=resident, faults=faults)

    def _sent(
        self, pool: ProcessPoolExecutor, server: ServerProcess, share: Share, indexes: range, until: float
    ) -> Tally:
        tally = Tally()
        addresses = addresses_of(server)
        good = known_good(addresses, share.protocols)
        waiting: set[Future[Tally]] = set()
        for at in range(0, len(indexes), CHUNK):
            if time.monotonic() > until or server.process.poll() is not None:
                break
            if len(waiting) >= 2 * self.processes:
                waiting = _merged(tally, waiting)
            chunk = indexes[at : at + CHUNK]
            waiting.add(pool.submit(sent_chunk, addresses, self.seed, chunk, share.protocols, good))
        while waiting:
            waiting = _merged(tally, waiting)
        return tally


def known_good(addresses: Mapping[Port, tuple[str, int]], protocols: Sequence[str]) -> Mapping[str, bytes]:
    """Requests that are right, one for each protocol, with the answers that they get for ever."""
    sender = Sender(addresses)
    names = _KNOWN_GOOD_LEAN if protocols else _KNOWN_GOOD
    try:
        return {name: sender.answered(_right(name)) for name in names}
    finally:
        sender.close()


def sent_chunk(
    addresses: Mapping[Port, tuple[str, int]],
    seed: int,
    indexes: range,
    protocols: Sequence[str],
    good: Mapping[str, bytes],
) -> Tally:
    """Send requests one after the other, and then those whose answers are known."""
    tally = Tally()
    sender = Sender(addresses)
    try:
        for index in indexes:
            sent = generated(seed, index, protocols)
            tally.add(sent, sender.send(sent.request))
        for name, expected in good.items():
            if (finding := _changed(sender, name, expected)) is not None:
                tally.findings.append(finding)
    finally:
        sender.close()
    return tally


def _right(name: str) -> Http | Call:
    request = dict(cases())[name]
    assert isinstance(request, Http | Call)
    if isinstance(request, Http):  # Else every answer has an id of its own.
        return msgspec.structs.replace(request, headers=(*request.headers, (b"x-request-id", b"known")))
    return request


def _changed(sender: Sender, name: str, expected: bytes) -> Finding | None:
    request = _right(name)
    try:
        answer = sender.answered(request)
    except Exception as error:  # noqa: BLE001  Whatever it is, it is a finding.
        answer = f"{type(error).__name__}: {error}".encode()
    if answer == expected:
        return None
    outcome = Outcome(
        status="changed", seconds=0, finding=f"no longer answered as before: {answer[:80]!r}", answer=answer
    )
    return Finding(Fuzzed(index=-1, case=name, kinds=("known good",), request=request), outcome)


def _store_faults(file: Path) -> list[str]:
    """What is wrong with a store, where there is one."""
    if not file.exists():
        return []
    with contextlib.closing(sqlite3.connect(file)) as store:
        (integrity,) = store.execute("PRAGMA integrity_check").fetchone()
        (count,) = store.execute("SELECT count(*) FROM inferences").fetchone()
    return [f"the store: {integrity}"] * (integrity != "ok") + ["nothing was recorded"] * (count == 0)


def _merged(tally: Tally, waiting: set[Future[Tally]]) -> set[Future[Tally]]:
    done, rest = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        tally.merge(future.result())
    return rest
