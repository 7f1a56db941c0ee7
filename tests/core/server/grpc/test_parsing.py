"""Malformed protobuf for the health and reflection services."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from app.core.server.auth.grpc_access import GrpcAccess
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.auth_apps import READ_KEY, access_with_keys
from tests.support.servers.grpc_server import GrpcTestClient, build_engine, run_grpc_server

MALFORMED = b"\xff\xff\xff"
HEALTH = "/grpc.health.v1.Health"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
METHODS = (f"{HEALTH}/Check", f"{HEALTH}/Watch", REFLECTION)


@pytest.fixture(scope="module", params=[False, True], ids=["without access control", "with access control"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[GrpcTestClient]:
    keys: Path = tmp_path_factory.mktemp("keys")
    interceptors = [GrpcAccess(access_with_keys(keys), GRPC_PROTOCOLS)] if request.param else []
    with run_grpc_server(build_engine(("detector",)), interceptors=interceptors) as opened:
        yield opened


def rejection(peer: GrpcTestClient, method: str, metadata: list[tuple[str, str]]) -> tuple[grpc.StatusCode, str]:
    """Send a malformed message and return the status and details."""
    call: Any
    if method == REFLECTION:
        call = peer.channel.stream_stream(method)(iter([MALFORMED]), metadata=metadata, timeout=30)
    else:
        call = peer.channel.unary_stream(method)(MALFORMED, metadata=metadata, timeout=30)
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    rpc_error: Any = error.value
    return rpc_error.code(), rpc_error.details()


@pytest.mark.parametrize("method", METHODS)
def test_malformed_message_is_invalid_argument_and_logged_once(
    peer: GrpcTestClient, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        status_and_details = rejection(peer, method, [("x-api-key", READ_KEY)])
    assert status_and_details == (grpc.StatusCode.INVALID_ARGUMENT, "The message cannot be parsed as protobuf")
    assert [(line["event"], line["method"], line["address"]) for line in logs] == [
        ("malformed gRPC message", method, "127.0.0.1")
    ]
    assert not caplog.records


def test_log_lines_of_malformed_messages_without_a_key_are_sampled(
    peer: GrpcTestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        statuses = {rejection(peer, METHODS[0], [])[0] for _ in range(100)}
    assert statuses == {grpc.StatusCode.INVALID_ARGUMENT}
    assert 1 <= len(logs) < 60
    assert not caplog.records
