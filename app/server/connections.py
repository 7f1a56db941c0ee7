"""The book of all connections over HTTP: how many there may be, and who has waited for too long."""

import ipaddress
import resource
from collections import Counter as Counts
from itertools import cycle
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.settings.server import SettingsError
from app.settings.transport import TransportSettings

__all__ = ("TICK_SECONDS", "Connections", "Watched", "raise_file_limit")

TICK_SECONDS = 0.1
_SLOTS = 10
"""Each connection is looked at in one tick of ten, so that ten thousand of them hold nobody up for long."""

_CONNECTIONS = 10_000
_OTHER_FILES = 512
"""Files beside connections over HTTP: models, recordings, logs, and connections of gRPC, of which no count is kept."""
_FILES = 65_536


class Watched(Protocol):
    """A connection that is looked at now and then."""

    def look(self, now: float) -> None:
        """End it if it has been waited for too long."""
        ...


class Connections:
    """Counts connections, and goes round them. Everything happens in the event loop.

    Args:
        settings: how many there may be.
        metrics: where they are told of.
        files: how many files the process may have open.

    Attributes:
        settings: of all connections.
        most: how many there may be.
        received: bytes of bodies that are held, of all connections together.
        until: when the server stops: the moment at which requests that have not arrived in full are given up, on the
            event loop's clock.

    Raises:
        SettingsError: when more connections are wanted than files may be open.
    """

    def __init__(self, settings: TransportSettings, metrics: CollectorRegistry, files: int) -> None:
        room = max(files - _OTHER_FILES, files // 2)
        if settings.max_connections is not None and settings.max_connections > room:
            message = f"--max-connections {settings.max_connections:,} needs a higher limit of open files (ulimit -n)"
            raise SettingsError(f"{message}: {files:,} leave room for {room:,}")
        self.settings = settings
        self.most = settings.max_connections or min(_CONNECTIONS, room)
        self.received = 0
        self.until: float | None = None
        self._open = 0
        self._addresses: Counts[str] = Counts()
        self._slots: list[set[Watched]] = [set() for _ in range(_SLOTS)]
        self._next_slot = cycle(self._slots)
        self._next_tick = cycle(self._slots)
        Gauge("charioteer_connections", "Connections over HTTP.", registry=metrics).set_function(lambda: self._open)
        held = Gauge("charioteer_received_bytes", "Bytes of bodies over HTTP that are held.", registry=metrics)
        held.set_function(lambda: self.received)
        self._refused = Counter(
            "charioteer_connections_refused", "Connections that found no place.", ("reason",), registry=metrics
        )
        for reason in ("all", "address"):
            # A series that begins with what is to be noticed has not increased, to Prometheus.
            self._refused.labels(reason)
        self._ended = Counter(
            "charioteer_connections_ended",
            "Connections that the server ended because of what came over them, or did not.",
            ("reason",),
            registry=metrics,
        )

    def admit(self, address: str) -> bool:
        """Count a connection that was made from `address`, if there is a place for it."""
        each = self.settings.max_address_connections
        if self._open >= self.most:
            self._refused.labels("all").inc()
            return False
        if each is not None:
            network = _network(address)
            if self._addresses[network] >= each:
                self._refused.labels("address").inc()
                return False
            self._addresses[network] += 1
        self._open += 1
        return True

    def left(self, address: str) -> None:
        """A connection that was admitted is over."""
        self._open -= 1
        if self.settings.max_address_connections is not None:
            network = _network(address)
            self._addresses[network] -= 1
            if not self._addresses[network]:
                del self._addresses[network]

    def watch(self, connection: Watched) -> set[Watched]:
        """Look at a connection once a second from now on, until it is taken out of the set that is given."""
        slot = next(self._next_slot)
        slot.add(connection)
        return slot

    def tick(self, now: float) -> None:
        """Look at the next tenth of them, at so many seconds of a clock that only goes forward."""
        for each in list(next(self._next_tick)):
            each.look(now)

    def ended(self, reason: str) -> None:
        """Count a connection that the server ends."""
        self._ended.labels(reason).inc()


def raise_file_limit() -> int:
    """Let the process have as many files open as it may, within reason: how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _FILES
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            # macOS says that there is no limit, and has one.
            return soft
    return max(soft, wanted)


def _network(address: str) -> str:
    """The address itself, or, of IPv6, the network that whoever has one has 2^64 of."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
