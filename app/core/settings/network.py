"""Settings for addresses, protocols, connections and access."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import Port, PositiveFloat, PositiveInt

from app.core.settings.environment import ACCESS, LIMITS, NETWORK, TLS, environment


class DefaultPort(int):
    """The port of a protocol that applies if none is set."""


_GRPC_PORT = DefaultPort(8081)


@Parameter(name="*", group=NETWORK)
@dataclass(frozen=True, kw_only=True)
class ListeningSettings:
    """Addresses, ports and protocols."""

    host: Annotated[str, environment("CHARIOTEER_HOST", "UVICORN_HOST", show=True)] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces, as containers need."""

    allowed_hosts: Annotated[str, environment("CHARIOTEER_ALLOWED_HOSTS")] = ""
    """Accepted names in the Host header besides loopback names, separated by commas; * for any. By default only
    loopback names if the server listens on a loopback address, otherwise any name."""

    port: Annotated[Port, environment("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT", show=True)] = 8080
    """Port to listen on; 0 for any free one."""

    grpc: Annotated[bool | None, environment("CHARIOTEER_GRPC")] = None
    """Whether to serve gRPC; by default yes, but with --demo only if --grpc-port is set."""

    grpc_port: Annotated[Port, environment("CHARIOTEER_GRPC_PORT", show=True)] = _GRPC_PORT
    """Port for gRPC; 0 for any free one."""

    chariot_protocol: Annotated[
        Literal["chariot-v2-kserve", "chariot-v2"],
        environment("CHARIOTEER_CHARIOT_PROTOCOL", "CHARIOT_INFERENCE_PROTOCOL"),
    ] = "chariot-v2-kserve"
    """Protocol that is served on Chariot's paths."""


@Parameter(name="*", group=ACCESS)
@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Authentication and rate limits. Without keys and tokens, every client may send requests."""

    api_keys: Annotated[Path | None, environment("CHARIOTEER_API_KEYS", show=True)] = None
    """File of API keys, written by `charioteer keys`. Requests without a valid key or token get 401."""

    requests_per_second: Annotated[PositiveFloat | None, environment("CHARIOTEER_REQUESTS_PER_SECOND")] = None
    """Requests per second of each client, unless its key has its own limit; further ones get 429. Needs keys or
    tokens."""

    burst: Annotated[PositiveInt | None, environment("CHARIOTEER_BURST")] = None
    """Requests that a client may send at once after a pause; by default the requests of one second."""

    insecure: Annotated[bool, environment("CHARIOTEER_INSECURE", show=True)] = False
    """Whether to listen on a public address without authentication, because a proxy or service mesh authenticates
    clients."""

    cors_origins: Annotated[str, environment("CHARIOTEER_CORS_ORIGINS")] = ""
    """Origins whose web pages may read responses, separated by commas: https://app.example; never with cookies."""


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
    """Timeout of the TLS and HTTP/2 handshakes of gRPC, in seconds."""

    header_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_HEADER_TIMEOUT")] = 10.0
    """Timeout for the headers of a request, in seconds."""

    body_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_BODY_TIMEOUT")] = 30.0
    """Timeout for a body in seconds; extended while the body arrives at 1,024 bytes a second or faster."""

    write_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_WRITE_TIMEOUT")] = 30.0
    """Seconds that a client may leave a response unread; then its connection is closed."""

    keep_alive_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_KEEP_ALIVE_TIMEOUT")] = 75.0
    """Seconds that an idle connection stays open for its first or next request."""

    max_header_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_HEADER_BYTES")] = 64 * 1024
    """Maximum bytes of the request line and headers, or of gRPC metadata; more get 431."""

    max_connections: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_CONNECTIONS")] = None
    """Maximum number of HTTP connections on all ports; further ones get 503. By default 10,000, or what the limit of
    open files allows."""

    max_received_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_RECEIVED_BYTES")] = 1024 * 1024 * 1024
    """Maximum bytes of all HTTP bodies in memory; above it, requests with more than a small body get 503."""

    max_grpc_streams: Annotated[PositiveInt, environment("CHARIOTEER_MAX_GRPC_STREAMS")] = 256
    """Maximum number of concurrent calls on one gRPC connection; the client queues further ones."""
