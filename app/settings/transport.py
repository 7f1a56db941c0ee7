"""Certificates, and what connections may cost before there is a request."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt

from app.settings.environment import environment

__all__ = ("TransportSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TransportSettings:
    """How bytes come and go."""

    tls_cert: Annotated[Path | None, environment("CHARIOTEER_TLS_CERT")] = None
    """The server's certificate, with those between it and its authority behind it (PEM); every port speaks TLS then. A
    renewed one is taken without a restart."""

    tls_key: Annotated[Path | None, environment("CHARIOTEER_TLS_KEY")] = None
    """The certificate's private key (PEM), not encrypted."""

    tls_client_ca: Annotated[Path | None, environment("CHARIOTEER_TLS_CLIENT_CA")] = None
    """Authorities (PEM); clients then have to show a certificate of one of them."""

    handshake_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_HANDSHAKE_TIMEOUT")] = 10.0
    """Seconds that a client is given to agree on TLS, and on HTTP/2 for gRPC."""

    header_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_HEADER_TIMEOUT")] = 10.0
    """Seconds that the headers of a request may take to arrive."""

    body_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_BODY_TIMEOUT")] = 30.0
    """Seconds in which a body has to arrive, or so much more of it as the lowest rate makes."""

    write_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_WRITE_TIMEOUT")] = 30.0
    """Seconds in which an answer has to be taken, or so much more of it as the lowest rate makes."""

    lowest_rate: Annotated[NonNegativeInt, environment("CHARIOTEER_LOWEST_RATE")] = 1024
    """Bytes a second below which a sender or a reader is too slow; 0 for any progress at all."""

    keep_alive_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_KEEP_ALIVE_TIMEOUT")] = 75.0
    """Seconds that a connection is kept for its first request, or the next."""

    max_header_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_HEADER_BYTES")] = 64 * 1024
    """Request line and headers of more bytes are refused with 431; so is gRPC's metadata."""

    max_header_fields: Annotated[PositiveInt, environment("CHARIOTEER_MAX_HEADER_FIELDS")] = 256
    """More headers are refused with 431."""

    max_connections: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_CONNECTIONS")] = None
    """Connections over HTTP, of all ports together; the next is answered 503. 10,000 when absent, or as many as the
    limit of open files allows."""

    max_address_connections: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_ADDRESS_CONNECTIONS")] = None
    """So many of them may be of one address; all when absent."""

    max_received_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_RECEIVED_BYTES")] = 1024 * 1024 * 1024
    """Bytes of all bodies together that are held over HTTP; who sends more than a little beyond it is answered 503."""

    max_grpc_streams: Annotated[PositiveInt, environment("CHARIOTEER_MAX_GRPC_STREAMS")] = 256
    """Calls that one gRPC connection may have open; the client keeps the next back until one has ended."""
