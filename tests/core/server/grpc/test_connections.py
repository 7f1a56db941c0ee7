"""Options and certificates of gRPC connections."""

import asyncio
import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from app.core.server.grpc.server import GrpcServer, connection_options
from app.core.server.tls import Certificates
from app.core.settings.network import TransportSettings
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.certificate_authority import CertificateAuthority
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


@pytest.mark.parametrize("length", [1, 120])
def test_tls_server_starts_with_a_temporary_folder_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    # pytest's own folder may be too long already.
    with tempfile.TemporaryDirectory(dir="/tmp") as short_folder:
        folder = Path(short_folder) / ("x" * length)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))

        async def run() -> tuple[int, str]:
            server = GrpcServer(
                build_engine(()),
                GRPC_PROTOCOLS,
                local_settings(),
                certificates=Certificates(*CertificateAuthority(tmp_path).issue("server")),
            )
            await server.start()
            addresses = server.port, server.internal_address
            await server.stop()
            return addresses

        port, inside = asyncio.run(run())
        assert port > 0
        # The page connects to this Unix socket; if the path is too long there is none.
        assert inside.startswith(f"unix:{folder}") == (length == 1)
        assert not list(folder.iterdir())
