"""Run open-loop traffic with faults, and record the results."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence

from tests.soak.ledger import ANSWERED, Entry, Ledger
from tests.soak.model_repository import ModelRepository
from tests.soak.server import Server, Usage
from tests.soak.traffic import RequestKind, RequestMaterial
from tests.soak.wire import Wire

_MAX_OPEN = 400
_TIMEOUT_SECONDS = 60.0
_CLOSED_LOOP_CLIENTS = 8
"""Concurrent clients while the capacity is measured."""
_FEW_OPEN = 24
"""Maximum of open requests of a server that has caught up."""


class Run:
    """The state that faults and traffic share.

    Args:
        server: may be started later.
        repository: the models of the server.
        material: images, questions and numbers for requests.
        request_kinds: the kinds of requests.
        seed: determines the order of requests.

    Attributes:
        ledger: the results of all requests.
        factor: the current multiple of the steady load.
        findings: sentences about errors other than wrong answers.
        usages: resource usage of the server's process, every second.
        held_back: requests that were not sent because too many were open.
        restarting: whether the server is stopped on purpose.
        over: whether the run sends no more requests.
        not_ready_reason: why the last readiness probe failed.
    """

    def __init__(
        self,
        server: Server,
        repository: ModelRepository,
        material: RequestMaterial,
        request_kinds: Sequence[RequestKind],
        seed: int,
    ) -> None:
        self.server = server
        self.repository = repository
        self.material = material
        self.wire = Wire(server.ports)
        self.ledger = Ledger()
        self.factor = 1.0
        self.findings: list[str] = []
        self.usages: list[Usage] = []
        self.held_back = 0
        self.restarting = False
        self.over = False
        self.not_ready_reason = ""
        self._request_kinds = request_kinds
        self._weights = list(itertools.accumulate(request_kind.weight for request_kind in request_kinds))
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._open: set[asyncio.Task[None]] = set()
        self._open_by_surface: Counter[str] = Counter()
        self._seed = seed

    def add_finding(self, sentence: str) -> None:
        """Record an error."""
        self.findings.append(sentence)

    async def until_ready(self, models: Sequence[str] = ("half_plus_two",)) -> bool:
        """Wait until the server is ready and answers correctly on every port; return False on timeout."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        probes = [request_kind for request_kind in self._request_kinds if request_kind.model in models]
        while time.monotonic() < end:
            ready = await self.wire.http("GET", "/ready")
            if ready.status != ANSWERED:
                self.not_ready_reason = f"/ready: {ready.status} {ready.note or ready.body[:300]!r}"
            elif await self._all_right(probes):
                return True
            if self.server.ended and not self.restarting:
                return False
            await asyncio.sleep(0.05)
        return False

    async def wait_until_few_open(self) -> None:
        """Wait until few requests are open."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        while len(self._open) > _FEW_OPEN and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def capacity(self, seconds: float) -> float:
        """Return the requests a second that closed-loop clients reach."""
        end = time.monotonic() + seconds
        answered = 0

        async def send() -> None:
            nonlocal answered
            while time.monotonic() < end:
                await self._send(self._next())
                answered += 1

        await asyncio.gather(*(send() for _ in range(_CLOSED_LOOP_CLIENTS)))
        return answered / seconds

    async def offer(self, rate: float) -> None:
        """Send `rate` requests a second until the run is over; a fault can multiply the rate by its `factor`."""
        due = time.monotonic()
        while not self.over:
            now = time.monotonic()
            if due > now:
                await asyncio.sleep(due - now)
            # Late requests are not sent all at once, because that would be a burst.
            due = max(due, now - 0.25) + 1 / (rate * self.factor)
            if len(self._open) >= _MAX_OPEN:
                self.held_back += 1
                continue
            task = asyncio.create_task(self._send(self._next()))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def wait_until_answered(self) -> None:
        """Wait until all sent requests are answered."""
        while self._open:
            await asyncio.gather(*self._open, return_exceptions=True)

    async def watch(self) -> None:
        """Poll the process every second; record and restart one that exited by itself."""
        while True:
            if self.server.ended and not self.restarting:
                self.add_finding(f"The server ended by itself with the status {self.server.wait()}")
                self.server.start()
                self.wire.close_idle()
            if not self.restarting and (usage := self.server.usage(len(self.ledger.entries))) is not None:
                self.usages.append(usage)
            await asyncio.sleep(1)

    def _next(self) -> RequestKind:
        while True:
            (request_kind,) = self._chance.choices(self._request_kinds, cum_weights=self._weights)
            if request_kind.max_open is None or self._open_by_surface[request_kind.surface] < request_kind.max_open:
                return request_kind

    async def _send(self, request_kind: RequestKind) -> None:
        number = f"soak-{self._seed}-{next(self._numbers)}"
        self._open_by_surface[request_kind.surface] += 1
        started = time.monotonic()
        outcome = await request_kind.send(self.wire, number, self._chance)
        self._open_by_surface[request_kind.surface] -= 1
        entry = Entry(
            id=number,
            surface=request_kind.surface,
            model=request_kind.model,
            started=started,
            ended=time.monotonic(),
            status=outcome.status,
            note=outcome.note,
            rows=request_kind.rows,
        )
        self.ledger.entries.append(entry)

    async def _all_right(self, probes: Sequence[RequestKind]) -> bool:
        probes_sent = (
            request_kind.send(self.wire, f"probe-{next(self._numbers)}", self._chance) for request_kind in probes
        )
        for request_kind, outcome in zip(probes, await asyncio.gather(*probes_sent), strict=True):
            if outcome.status != ANSWERED or outcome.note:
                self.not_ready_reason = f"{request_kind.surface}, {request_kind.model}: {outcome.status} {outcome.note}"
                return False
        return True
