"""Track all HTTP connections: limit their number, check their timeouts, and hold what they share."""

import ipaddress
import resource
from collections import Counter as Counts
from email.utils import formatdate
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any

import msgspec
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry, Counter, Gauge

from app.core.server.http.direct_request import DirectRoutes
from app.core.server.tls import Certificates, load_certificates
from app.core.server.transport.load_shedding import LoadShedder, RouteTable
from app.core.settings.network import TransportSettings
from app.core.settings.server import ServerSettings, SettingsError

if TYPE_CHECKING:
    from app.core.server.transport.connection import Connection

TICK_SECONDS = 0.1
_SLOT_COUNT = 10
"""Each tick checks a tenth of the connections, so that ten thousand of them do not block the event loop."""

_DEFAULT_MAX_CONNECTIONS = 10_000
_RESERVED_FILES = 512
"""File descriptors besides HTTP connections: models, recordings, logs, and gRPC connections, which are not counted."""
_MAX_FILES = 65_536


class Listener(msgspec.Struct, kw_only=True, eq=False):
    """An application with a port of its own.

    Attributes:
        routes: finds requests that are rejected by their headers, or answered without the application.
        name: its name in the start message.
        port: the port to listen on, 0 for any free one; the actual one after the start.
    """

    app: ASGIApp
    routes: RouteTable = msgspec.field(default_factory=RouteTable)
    name: str = ""
    port: int = 0


class ConnectionTable:
    """Count connections and check their timeouts. All methods run in the event loop.

    Args:
        max_open_files: how many files the process can have open.

    Attributes:
        tasks: the requests in progress, which the server waits for, and cancels when they take too long.
        default_headers: headers of every response.
        buffered_bytes: bytes of bodies in memory, of all connections together.
        direct_routes: answers the usual inferences without the application; None without direct routes.
        shedder: rejects requests by their headers while the server is overloaded.
        reject_incomplete_at: during shutdown, the time of the event loop at which incomplete requests are rejected;
            None before it.

    Raises:
        SettingsError: if the connection limit exceeds the limit of open files.
    """

    def __init__(
        self,
        settings: TransportSettings,
        metrics: CollectorRegistry,
        max_open_files: int,
        certificates: Certificates | None = None,
    ) -> None:
        available = max(max_open_files - _RESERVED_FILES, max_open_files // 2)
        if settings.max_connections is not None and settings.max_connections > available:
            message = f"--max-connections {settings.max_connections:,} needs a higher limit of open files (ulimit -n)"
            raise SettingsError(f"{message}: {max_open_files:,} leave room for {available:,}")
        self.settings = settings
        self.certificates = certificates
        self.tasks: set[Any] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.max_connections = settings.max_connections or min(_DEFAULT_MAX_CONNECTIONS, available)
        self.buffered_bytes = 0
        self.reject_incomplete_at: float | None = None
        self.shedder = LoadShedder()
        self.direct_routes: DirectRoutes | None = None
        self._open_count = 0
        self._open_by_network: Counts[str] = Counts()
        self._slots: list[set[Connection]] = [set() for _ in range(_SLOT_COUNT)]
        self._next_slot = cycle(self._slots)
        self._next_tick = cycle(self._slots)
        Gauge("charioteer_connections", "Open HTTP connections.", registry=metrics).set_function(
            lambda: self._open_count
        )
        received_gauge = Gauge("charioteer_received_bytes", "Bytes of HTTP bodies in memory.", registry=metrics)
        received_gauge.set_function(lambda: self.buffered_bytes)
        self._refused_counter = Counter(
            "charioteer_connections_refused", "Connections refused at a limit.", ("reason",), registry=metrics
        )
        for reason in ("all", "address"):
            # Start each series at zero: Prometheus sees no increase in a series that starts at one.
            self._refused_counter.labels(reason)
        self._ended_counter = Counter(
            "charioteer_connections_ended",
            "Connections that the server ended, by reason.",
            ("reason",),
            registry=metrics,
        )

    @property
    def scheme(self) -> str:
        """Return the URL scheme of HTTP addresses."""
        return "http" if self.certificates is None else "https"

    @property
    def open_connections(self) -> "list[Connection]":
        """Return the open connections."""
        return list(chain.from_iterable(self._slots))

    def set_date(self) -> None:
        """Update the header Date; call it at least once a second."""
        self.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    def try_acquire(self, address: str) -> bool:
        """Count a connection from `address` and return True, or return False if a limit is reached."""
        max_address_connections = self.settings.max_address_connections
        if self._open_count >= self.max_connections:
            self._refused_counter.labels("all").inc()
            return False
        if max_address_connections is not None:
            network = _network(address)
            if self._open_by_network[network] >= max_address_connections:
                self._refused_counter.labels("address").inc()
                return False
            self._open_by_network[network] += 1
        self._open_count += 1
        return True

    def release(self, address: str) -> None:
        """Release an admitted connection that is closed."""
        self._open_count -= 1
        if self.settings.max_address_connections is not None:
            network = _network(address)
            self._open_by_network[network] -= 1
            if not self._open_by_network[network]:
                del self._open_by_network[network]

    def schedule_checks(self, connection: "Connection") -> "set[Connection]":
        """Check a connection once a second until it is removed from the returned set."""
        slot = next(self._next_slot)
        slot.add(connection)
        return slot

    def check_next(self, now: float) -> None:
        """Check the next tenth of the connections; `now` is the time of the event loop."""
        for connection in list(next(self._next_tick)):
            connection.check_timeout(now)

    def count_ended(self, reason: str) -> None:
        """Count a connection that the server ends for `reason`."""
        self._ended_counter.labels(reason).inc()


def open_connection_table(settings: ServerSettings, metrics: CollectorRegistry) -> ConnectionTable:
    """Create the table from the settings, and raise the limit of open files.

    Raises:
        SettingsError: if the certificates are not usable, or the connection limit is too high.
    """
    certificates = load_certificates(settings)
    if certificates is not None:
        certificates.export_expiry(metrics)
    return ConnectionTable(settings, metrics, raise_file_limit(), certificates)


def raise_file_limit() -> int:
    """Raise the limit of open files of the process within reason, and return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_FILES
    target = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target)


def _network(address: str) -> str:
    """Return an IPv4 address itself, or the /64 network of an IPv6 address: one client can own a whole /64."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
