"""Options and certificates of gRPC connections."""

import asyncio
from dataclasses import replace
from math import inf

import pytest

from app.core.server.grpc.server import GrpcServer, connection_options
from app.core.settings.network import TransportSettings
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.grpc_server import build_engine, local_settings


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0.5, 500), (0.0001, 1), (1e9, 86_400_000), (inf, 86_400_000)])
def test_handshake_timeout_is_clamped_to_what_grpc_accepts(seconds: float, milliseconds: int) -> None:
    options = dict(connection_options(TransportSettings(handshake_timeout=seconds)))
    assert options["grpc.server_handshake_timeout_ms"] == milliseconds


def test_server_starts_with_limits_above_those_of_grpc() -> None:
    limits = dict.fromkeys(("max_request_bytes", "max_grpc_streams", "max_header_bytes"), 2**40)

    async def run() -> None:
        server = GrpcServer(build_engine(()), GRPC_PROTOCOLS, replace(local_settings(), **limits))
        await server.start()
        await server.stop()

    asyncio.run(run())
