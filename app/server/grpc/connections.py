"""Limit gRPC connections with channel options of gRPC's core."""

from app.settings.network import TransportSettings

_KEEPALIVE_SECONDS = 60
_KEEPALIVE_TIMEOUT_SECONDS = 20
"""A vanished client is detected after this time; the default would be two hours."""

_IDLE_SECONDS = 300
"""Connections without a call close after this time, as over HTTP. Clients reconnect when needed."""

_PING_SECONDS = 10
"""Minimum interval of client pings, which keeps a connection through most networks."""

_PING_STRIKES = 2

_MAX_SECONDS = 24 * 3600
"""gRPC's core counts milliseconds in 32 bits."""


def connection_options(settings: TransportSettings) -> list[tuple[str, int]]:
    """Return the options of a server. Connections have no maximum age: a working one is kept."""
    return [
        ("grpc.max_concurrent_streams", settings.max_grpc_streams),
        # It rejects valid calls, because it counts completed ones until Python releases them.
        ("grpc.http.overload_protection", 0),
        # Between the two limits gRPC rejects calls at random, so both are equal.
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
    return max(1, round(min(seconds, _MAX_SECONDS) * 1000))
