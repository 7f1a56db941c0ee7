"""Run a campaign: shares of requests, each with its own server, sent by several processes."""

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
from tests.fuzz.generation import Fuzzed, generate_request
from tests.fuzz.models import write_models
from tests.fuzz.requests import Call, Http, Port
from tests.fuzz.sending import Outcome, Sender
from tests.fuzz.server import addresses_of, fuzzed_server, log_faults, resident_bytes
from tests.fuzz.tally import Finding, ShareReport, Tally, save_findings
from tests.support.servers.server_process import ServerProcess

CHUNK = 250
"""Number of requests after which known requests must be answered as before."""

SAMPLED = 5000
"""Number of requests after which the memory of the server is measured."""

_KNOWN_GOOD = (
    "chariot-v2-kserve/detection", "kserve-v2/tensor-json", "kserve-v1/tensor-instances",
    "tensorflow-serving/predict-row", "grps/gtensors-float32",
    "grpc/picture", "grpc/bin_data",
)  # fmt: skip
_KNOWN_GOOD_CHARIOT_V2 = ("chariot-v2/detection", "tensorflow-serving/predict-row", "grpc/picture")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a campaign.

    Attributes:
        name: used in reports and file names.
        part: fraction of all requests.
        protocols: protocols whose cases are mutated; all when empty.
        arguments: arguments of the server; `OUT` stands for the share's folder.
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
    """A campaign.

    Attributes:
        seed: seed of the requests.
        first: index of the first request.
        requests: maximum number of requests.
        seconds: maximum duration.
        processes: number of processes that send requests.
        folder: folder for findings and logs.
        shares: shares to run.
    """

    seed: int
    first: int = 0
    requests: int
    seconds: float
    processes: int
    folder: Path
    shares: tuple[Share, ...] = SHARES

    def run(self) -> list[ShareReport]:
        """Run the campaign, and save the findings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        models = self.folder / "models"
        write_models(models)
        deadline = time.monotonic() + self.seconds
        reports: list[ShareReport] = []
        start = self.first
        for share in self.shares:
            count = round(self.requests * share.part)
            reports.append(self._run(share, models, range(start, start + count), deadline))
            start += count
        return reports

    def _run(self, share: Share, models: Path, indexes: range, deadline: float) -> ShareReport:
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
            for start_index in range(0, len(indexes), SAMPLED):
                tally.merge(self._send(pool, server, share, indexes[start_index : start_index + SAMPLED], deadline))
                resident.append(resident_bytes(server))
            seconds = time.monotonic() - start
            save_findings(folder, tally.findings)
            status = server.stop()
        (folder / "server.log").write_text("".join(server.log))
        faults = log_faults(server.log)
        faults.update(_store_faults(folder / "inferences.db"))
        if status:
            faults[f"the server ended with status {status}"] += 1
        return ShareReport(name=share.name, tally=tally, seconds=seconds, resident=resident, faults=faults)

    def _send(
        self, pool: ProcessPoolExecutor, server: ServerProcess, share: Share, indexes: range, deadline: float
    ) -> Tally:
        tally = Tally()
        addresses = addresses_of(server)
        known_answers = known_good_answers(addresses, share.protocols)
        pending: set[Future[Tally]] = set()
        for start_index in range(0, len(indexes), CHUNK):
            if time.monotonic() > deadline or server.process.poll() is not None:
                break
            if len(pending) >= 2 * self.processes:
                pending = _merge_completed(tally, pending)
            chunk = indexes[start_index : start_index + CHUNK]
            pending.add(pool.submit(send_chunk, addresses, self.seed, chunk, share.protocols, known_answers))
        while pending:
            pending = _merge_completed(tally, pending)
        return tally


def known_good_answers(addresses: Mapping[Port, tuple[str, int]], protocols: Sequence[str]) -> Mapping[str, bytes]:
    """Send one valid request for each protocol, and return its answers for later comparison."""
    sender = Sender(addresses)
    names = _KNOWN_GOOD_CHARIOT_V2 if protocols else _KNOWN_GOOD
    try:
        return {name: sender.reference_answer(_known_request(name)) for name in names}
    finally:
        sender.close()


def send_chunk(
    addresses: Mapping[Port, tuple[str, int]],
    seed: int,
    indexes: range,
    protocols: Sequence[str],
    known_answers: Mapping[str, bytes],
) -> Tally:
    """Send requests in sequence, and then the requests with known answers."""
    tally = Tally()
    sender = Sender(addresses)
    try:
        for index in indexes:
            sent = generate_request(seed, index, protocols)
            tally.add(sent, sender.send(sent.request))
        for name, expected in known_answers.items():
            if (finding := _changed_answer(sender, name, expected)) is not None:
                tally.findings.append(finding)
    finally:
        sender.close()
    return tally


def _known_request(name: str) -> Http | Call:
    request = dict(cases())[name]
    assert isinstance(request, Http | Call)
    if isinstance(request, Http):  # Otherwise, each answer has a new id.
        return msgspec.structs.replace(request, headers=(*request.headers, (b"x-request-id", b"known")))
    return request


def _changed_answer(sender: Sender, name: str, expected: bytes) -> Finding | None:
    request = _known_request(name)
    try:
        answer = sender.reference_answer(request)
    except Exception as error:  # noqa: BLE001  Any exception is a finding.
        answer = f"{type(error).__name__}: {error}".encode()
    if answer == expected:
        return None
    outcome = Outcome(
        status="changed", seconds=0, finding=f"no longer answered as before: {answer[:80]!r}", answer=answer
    )
    return Finding(Fuzzed(index=-1, case=name, kinds=("known good",), request=request), outcome)


def _store_faults(file: Path) -> list[str]:
    """Return errors in a store, if there is one."""
    if not file.exists():
        return []
    with contextlib.closing(sqlite3.connect(file)) as store:
        (integrity,) = store.execute("PRAGMA integrity_check").fetchone()
        (count,) = store.execute("SELECT count(*) FROM inferences").fetchone()
    return [f"the store: {integrity}"] * (integrity != "ok") + ["nothing was recorded"] * (count == 0)


def _merge_completed(tally: Tally, pending: set[Future[Tally]]) -> set[Future[Tally]]:
    done, not_done = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        tally.merge(future.result())
    return not_done
