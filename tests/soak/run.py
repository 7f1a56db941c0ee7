"""One run: requests that come whether or not the server keeps up, faults beside them, and what became of both."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence

from tests.soak.ledger import ANSWERED, Entry, Ledger
from tests.soak.server import Server, Usage
from tests.soak.shelf import Shelf
from tests.soak.traffic import Material, Shot
from tests.soak.wire import Wire

__all__ = ("Run",)

_MOST_OPEN = 400
_PATIENCE = 60.0
_CLOSED = 8
"""Requests at once while the machine's own rate is found out."""
_FEW = 24
"""Open requests at most of a server that has caught up."""


class Run:
    """What faults and traffic share.

    Args:
        server: that is started already, or will be.
        shelf: its models.
        material: what requests are made of.
        shots: the kinds of requests.
        seed: decides their order.

    Attributes:
        ledger: what became of them.
        factor: how much more than the steady load is offered now.
        findings: what is wrong beside single answers, sentences.
        usages: of the server's process, a second apart.
        held_back: requests that were not sent because too many were open.
        restarting: whether it is down on purpose.
        over: whether the run sends no more requests.
        amiss: why it was not ready when that was asked last.
    """

    def __init__(self, server: Server, shelf: Shelf, material: Material, shots: Sequence[Shot], seed: int) -> None:
        self.server = server
        self.shelf = shelf
        self.material = material
        self.wire = Wire(server.ports)
        self.ledger = Ledger()
        self.factor = 1.0
        self.findings: list[str] = []
        self.usages: list[Usage] = []
        self.held_back = 0
        self.restarting = False
        self.over = False
        self.amiss = ""
        self._shots = shots
        self._weights = list(itertools.accumulate(shot.weight for shot in shots))
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._open: set[asyncio.Task[None]] = set()
        self._asked: Counter[str] = Counter()
        self._seed = seed

    def find(self, sentence: str) -> None:
        """Note something that is wrong."""
        self.findings.append(sentence)

    async def until_ready(self, models: Sequence[str] = ("half_plus_two",)) -> bool:
        """Wait until it says that it is ready and answers right, on every port: whether it came to that."""
        end = time.monotonic() + _PATIENCE
        probes = [shot for shot in self._shots if shot.model in models]
        while time.monotonic() < end:
            ready = await self.wire.http("GET", "/ready")
            if ready.status != ANSWERED:
                self.amiss = f"/ready: {ready.status} {ready.note or ready.body[:300]!r}"
            elif await self._all_right(probes):
                return True
            if self.server.ended and not self.restarting:
                return False
            await asyncio.sleep(0.05)
        return False

    async def caught_up(self) -> None:
        """Wait until few requests are open."""
        end = time.monotonic() + _PATIENCE
        while len(self._open) > _FEW and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def capacity(self, seconds: float) -> float:
        """Requests a second of as many senders as keep it busy."""
        end = time.monotonic() + seconds
        answered = 0

        async def send() -> None:
            nonlocal answered
            while time.monotonic() < end:
                await self._send(self._next())
                answered += 1

        await asyncio.gather(*(send() for _ in range(_CLOSED)))
        return answered / seconds

    async def offer(self, rate: float) -> None:
        """Send `rate` requests a second until the run is over; a fault can multiply the rate by its `factor`."""
        due = time.monotonic()
        while not self.over:
            now = time.monotonic()
            if due > now:
                await asyncio.sleep(due - now)
            # What could not be sent in time is not made up for at once: that would be a burst of our own making.
            due = max(due, now - 0.25) + 1 / (rate * self.factor)
            if len(self._open) >= _MOST_OPEN:
                self.held_back += 1
                continue
            task = asyncio.create_task(self._send(self._next()))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def drained(self) -> None:
        """Wait for the answers of all that was sent."""
        while self._open:
            await asyncio.gather(*self._open, return_exceptions=True)

    async def watch(self) -> None:
        """Look at the process every second, for ever; one that ended by itself is noted, and started again."""
        while True:
            if self.server.ended and not self.restarting:
                self.find(f"The server ended by itself with the status {self.server.wait()}")
                self.server.start()
                self.wire.forget()
            if not self.restarting and (usage := self.server.usage(len(self.ledger.entries))) is not None:
                self.usages.append(usage)
            await asyncio.sleep(1)

    def _next(self) -> Shot:
        while True:
            (shot,) = self._chance.choices(self._shots, cum_weights=self._weights)
            if shot.most is None or self._asked[shot.surface] < shot.most:
                return shot

    async def _send(self, shot: Shot) -> None:
        number = f"soak-{self._seed}-{next(self._numbers)}"
        self._asked[shot.surface] += 1
        began = time.monotonic()
        outcome = await shot.ask(self.wire, number, self._chance)
        self._asked[shot.surface] -= 1
        entry = Entry(
            id=number,
            surface=shot.surface,
            model=shot.model,
            began=began,
            ended=time.monotonic(),
            status=outcome.status,
            note=outcome.note,
            rows=shot.rows,
        )
        self.ledger.entries.append(entry)

    async def _all_right(self, probes: Sequence[Shot]) -> bool:
        asked = (shot.ask(self.wire, f"probe-{next(self._numbers)}", self._chance) for shot in probes)
        for shot, outcome in zip(probes, await asyncio.gather(*asked), strict=True):
            if outcome.status != ANSWERED or outcome.note:
                self.amiss = f"{shot.surface}, {shot.model}: {outcome.status} {outcome.note}"
                return False
        return True
