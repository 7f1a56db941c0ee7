"""What the HTTP ports of a server share: limits, certificates and metrics."""

from collections.abc import Sized
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.core.server.http.exchange import Bodies
from app.core.server.listen import connection_limit, raise_file_limit
from app.core.server.tls import Certificates, load_certificates
from app.core.settings.network import TransportSettings
from app.core.settings.server import ServerSettings


class Transport:
    """The connections of all ports, their limits and counters.

    Raise SettingsError if the connection limit is too high.

    Args:
        settings: the limits.
        metrics: where they are counted.
        max_body_bytes: limit for one body.
        max_open_files: how many files the process can have open.
        certificates: None without TLS.

    Attributes:
        bodies: the bodies of all requests.
        connections: the open connections.
        max_connections: further ones get 503, and are counted as `rejected`.
        ended: counts connections that the server ended, by reason.
    """

    def __init__(
        self,
        settings: TransportSettings,
        metrics: CollectorRegistry,
        max_body_bytes: int,
        max_open_files: int,
        certificates: Certificates | None = None,
    ) -> None:
        self.settings = settings
        self.certificates = certificates
        self.connections: Sized = ()
        self.max_connections = connection_limit(settings.max_connections, max_open_files)
        self.rejected = Counter("charioteer_connections_refused", "Connections refused at a limit.", registry=metrics)
        self.ended = Counter(
            "charioteer_connections_ended",
            "Connections that the server ended, by reason.",
            ("reason",),
            registry=metrics,
        )
        for reason in ("silent", "headers", "body"):
            # Start each series at zero: Prometheus sees no increase in a series that starts at one.
            self.ended.labels(reason)
        self.bodies = Bodies(
            max_body_bytes,
            settings.max_received_bytes,
            settings.body_timeout,
            on_timeout=self.ended.labels("body").inc,
        )
        gauge = partial(Gauge, registry=metrics)
        gauge("charioteer_connections", "Open HTTP connections.").set_function(lambda: len(self.connections))
        gauge("charioteer_received_bytes", "Bytes of HTTP bodies in memory.").set_function(lambda: self.bodies.size)
        if certificates is not None:
            name = "charioteer_certificate_expiry_timestamp_seconds"
            documentation = "When the certificate of the server ends, in seconds since the epoch."
            gauge(name, documentation).set_function(lambda: certificates.expiry)

    @property
    def scheme(self) -> str:
        """Return the URL scheme of HTTP addresses."""
        return "http" if self.certificates is None else "https"


def open_transport(settings: ServerSettings, metrics: CollectorRegistry) -> Transport:
    """Create the transport from the settings, and raise the limit of open files.

    Raise SettingsError if the certificates are not usable, or the connection limit is too high.
    """
    certificates = load_certificates(settings)
    return Transport(settings, metrics, settings.max_request_bytes, raise_file_limit(), certificates)
