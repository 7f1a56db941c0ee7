"""What connections of gRPC may cost: options of its core, which counts and waits by itself."""

from app.settings.transport import TransportSettings

__all__ = ("connection_options",)

_KEEPALIVE_SECONDS = 60
_KEEPALIVE_TIMEOUT_SECONDS = 20
"""A client that vanished is noticed by now; the default would take two hours."""

_IDLE_SECONDS = 300
"""A connection without a call ends then, as one over HTTP does. Clients make another when they need it."""

_PING_SECONDS = 10
"""Clients may ping as often, which keeps a connection through most networks; two more than that, and it ends."""

_PING_STRIKES = 2

_LONGEST_SECONDS = 24 * 3600
"""Its core counts milliseconds in 32 bits."""


def connection_options(settings: TransportSettings) -> list[tuple[str, int]]:
    """Options of a server. Ages are left without bound: a connection that works is worth keeping."""
    return [
        ("grpc.max_concurrent_streams", settings.max_grpc_streams),
        # It refuses calls of honest clients, because it counts those that are over until Python has let go of them.
        ("grpc.http.overload_protection", 0),
        # Above the first a call is refused at random, above the second always. Nobody is served by chance here.
        ("grpc.max_metadata_size", settings.max_header_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_header_bytes),
        ("grpc.server_handshake_timeout_ms", _milliseconds(settings.handshake_timeout)),
        ("grpc.max_connection_idle_ms", _milliseconds(_IDLE_SECONDS)),
        ("grpc.keepalive_time_ms", _milliseconds(_KEEPALIVE_SECONDS)),
        ("grpc.keepalive_timeout_ms", _milliseconds(_KEEPALIVE_TIMEOUT_SECONDS)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _milliseconds(_PING_SECONDS)),
        ("grpc.http2.max_ping_strikes", _PING_STRIKES),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, round(min(seconds, _LONGEST_SECONDS) * 1000))
