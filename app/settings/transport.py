"""Settings for TLS, timeouts and limits of connections."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt

from app.settings.environment import LIMITS, TLS, environment

__all__ = ("TransportSettings",)


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, kw_only=True)
class TransportSettings:
    """TLS, timeouts and limits of connections."""

    tls_cert: Annotated[Path | None, environment("CHARIOTEER_TLS_CERT", show=True, group=TLS)] = None
    """Certificate chain of the server (PEM); all ports then use TLS. A renewed file is reloaded without a restart."""

    tls_key: Annotated[Path | None, environment("CHARIOTEER_TLS_KEY", show=True, group=TLS)] = None
    """Private key of the certificate (PEM), not encrypted."""

    tls_client_ca: Annotated[Path | None, environment("CHARIOTEER_TLS_CLIENT_CA", group=TLS)] = None
    """Certificate authorities (PEM); clients must then present a certificate from one of them."""

    handshake_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_HANDSHAKE_TIMEOUT", group=TLS)] = 10.0
    """Timeout of the TLS handshake, and of the HTTP/2 handshake for gRPC, in seconds."""

    header_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_HEADER_TIMEOUT")] = 10.0
    """Timeout for the headers of a request, in seconds."""

    body_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_BODY_TIMEOUT")] = 30.0
    """Timeout for a body in seconds; extended while the body arrives at the lowest rate or faster."""

    write_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_WRITE_TIMEOUT")] = 30.0
    """Timeout for sending a response in seconds; extended while the client reads at the lowest rate or faster."""

    lowest_rate: Annotated[NonNegativeInt, environment("CHARIOTEER_LOWEST_RATE")] = 1024
    """Minimum bytes per second of a client that sends or reads; 0 for any progress."""

    keep_alive_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_KEEP_ALIVE_TIMEOUT")] = 75.0
    """Seconds that an idle connection stays open for its first or next request."""

    max_header_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_HEADER_BYTES")] = 64 * 1024
    """Maximum bytes of the request line and headers, or of gRPC metadata; more get 431."""

    max_header_fields: Annotated[PositiveInt, environment("CHARIOTEER_MAX_HEADER_FIELDS")] = 256
    """Maximum number of headers; more get 431."""

    max_connections: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_CONNECTIONS")] = None
    """Maximum number of HTTP connections on all ports; further ones get 503. By default 10,000, or what the limit of
    open files allows."""

    max_address_connections: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_ADDRESS_CONNECTIONS")] = None
    """Maximum number of HTTP connections from one address; by default no separate limit."""

    max_received_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_RECEIVED_BYTES")] = 1024 * 1024 * 1024
    """Maximum bytes of all HTTP bodies in memory; above it, requests with more than a small body get 503."""

    max_grpc_streams: Annotated[PositiveInt, environment("CHARIOTEER_MAX_GRPC_STREAMS")] = 256
    """Maximum number of concurrent calls on one gRPC connection; the client queues further ones."""
