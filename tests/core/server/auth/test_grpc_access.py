"""Authentication and authorization over gRPC."""

import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from prometheus_client import CollectorRegistry

from app.core.server.auth.access_control import AccessControl, open_access_control
from app.core.server.auth.api_keys import ApiKey, ApiKeys, read_keys
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.grpc_access import GrpcAccess
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.network import AccessSettings
from app.plugins.access.keys.key_file import add_key, remove_key
from tests.support.models.scripted_model import EventRecorder
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.auth_apps import ADMIN_KEY, INFER_KEY, access_with_keys
from tests.support.servers.grpc_server import (
    GrpcTestClient,
    Metadata,
    build_engine,
    message,
    number_request,
    raises_status,
    run_grpc_server,
)

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
ECHO = "echo-fp32"


OBSERVER = EventRecorder()


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Generator[GrpcTestClient]:
    with peer_of(access_with_keys(tmp_path_factory.mktemp("keys"))) as opened:
        yield opened


def peer_of(access: AccessControl | None) -> Any:
    interceptors = [] if access is None else [GrpcAccess(access, GRPC_PROTOCOLS)]
    return run_grpc_server(build_engine((ECHO,), observers=[OBSERVER]), interceptors=interceptors)


def infer() -> Any:
    return number_request([1.0])


def bearer(key: str) -> Metadata:
    return [("authorization", f"Bearer {key}")]


@pytest.mark.parametrize(
    "metadata", [bearer(INFER_KEY), [("x-api-key", INFER_KEY)], [("authorization", f"bearer  {INFER_KEY}")]]
)
def test_key_in_the_metadata_is_accepted(peer: GrpcTestClient, metadata: Metadata) -> None:
    assert peer.call("ModelInfer", infer(), metadata).model_name == ECHO
    assert (OBSERVER.events[-1].client, OBSERVER.events[-1].address) == ("camera", "127.0.0.1")


@pytest.mark.parametrize(
    ("metadata", "error_text"),
    [
        ([], "Expected a key or a token in Authorization or X-API-Key, got neither"),
        (bearer("wrong"), "The key is not known here"),
        (bearer(""), "Expected a key or a token in authorization, got none"),
        ([("authorization-bin", b"Bearer")], "Expected a key or a token in Authorization or X-API-Key, got neither"),
    ],
)
def test_call_without_a_valid_key_is_unauthenticated(peer: GrpcTestClient, metadata: Any, error_text: str) -> None:
    assert peer.call_error("ModelInfer", infer(), metadata) == (UNAUTHENTICATED, error_text)


def test_rejected_call_is_logged_with_its_address(peer: GrpcTestClient) -> None:
    with structlog.testing.capture_logs() as logs:
        peer.call_error("ModelInfer", infer(), [*bearer("wrong"), ("x-request-id", "r-5")])
        # The line may be written after the rejection is sent; this call waits for it.
        peer.call("ServerLive")
    (line,) = logs
    assert (line["event"], line["reason"], line["address"]) == ("access refused", "unknown", "127.0.0.1")
    assert (line["what"], line["request_id"]) == ("/inference.GRPCInferenceService/ModelInfer", "r-5")


def test_unauthenticated_call_is_rejected_before_its_message_is_read(peer: GrpcTestClient) -> None:
    """Send a message over the size limit: the rejection is about the key, not about the size."""
    call = peer.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    with raises_status(UNAUTHENTICATED):
        call(b"\0" * 1_900_000, timeout=30)


def test_unknown_method_is_unimplemented(peer: GrpcTestClient) -> None:
    with raises_status(grpc.StatusCode.UNIMPLEMENTED):
        peer.call_bytes("/inference.GRPCInferenceService/Nothing", b"")


def test_every_message_of_a_stream_counts_as_a_request(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    limits: dict[str, Any] = {"requests_per_second": 0.01, "burst": 3}
    add_key(path, "slow", ApiKey(name="slow", sha256="0" * 64, permissions=("infer",), **limits))
    with peer_of(open_access_control(AccessSettings(api_keys=path), CollectorRegistry())) as peer:
        responses = peer.stream([infer()] * 5, bearer("slow"))
        received: list[Any] = []
        with raises_status(grpc.StatusCode.RESOURCE_EXHAUSTED):
            received.extend(responses)
        assert len(received) == 3
        status, error_text = peer.call_error("ModelInfer", infer(), bearer("slow"))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_text == "Expected at most 0.01 requests a second from slow, got more"
        assert 90_000 <= int(peer.trailing_metadata["grpc-retry-pushback-ms"]) <= 100_000


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("/inference.GRPCInferenceService/ModelStreamInfer", infer().SerializeToString()),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"\x3a\0"),
    ],
)
def test_stream_ends_when_its_key_is_removed_and_the_rejection_is_logged(
    tmp_path: Path, method: str, data: bytes
) -> None:
    path = tmp_path / "keys.json"
    add_key(path, "slow", ApiKey(name="slow", sha256="0" * 64, permissions=("infer", "read")))
    keys = WatchedFile(path, lambda content: ApiKeys(read_keys(content)), "--api-keys", check_seconds=0)
    with (
        structlog.testing.capture_logs() as logs,
        peer_of(AccessControl(keys, None, RateLimiter(), RejectionLog(CollectorRegistry()))) as peer,
    ):
        first_response = threading.Event()

        def requests() -> Iterator[bytes]:
            yield data
            assert first_response.wait(60)
            remove_key(path, "slow")
            yield data

        responses = peer.channel.stream_stream(method)(requests(), metadata=bearer("slow"), timeout=60)
        assert next(responses)
        first_response.set()
        with raises_status(UNAUTHENTICATED):
            list(responses)
    assert [(line["event"], line["what"], line["address"]) for line in logs] == [
        ("access refused", method, "127.0.0.1")
    ]


def test_abandoned_stream_leaves_no_error_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with peer_of(access_with_keys(tmp_path)) as peer:
        for _ in range(5):
            abandoned = threading.Event()

            def requests(abandoned: threading.Event = abandoned) -> Iterator[bytes]:
                yield infer().SerializeToString()
                abandoned.wait(60)

            method = "/inference.GRPCInferenceService/ModelStreamInfer"
            responses = peer.channel.stream_stream(method)(requests(), metadata=bearer(INFER_KEY), timeout=60)
            assert next(responses)
            responses.cancel()
            abandoned.set()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


LOAD, UNLOAD = "RepositoryModelLoad", "RepositoryModelUnload"


def audited(peer: GrpcTestClient, method: str, data: bytes, metadata: Metadata) -> dict[str, Any]:
    with structlog.testing.capture_logs() as logs:
        with suppress(grpc.RpcError):
            peer.call_bytes(method, data, metadata)
        # A rejection is sent before its line is written; this call waits for the line.
        peer.call("ServerLive")
    (line,) = [line for line in logs if line["event"] == "audit"]
    return dict(line)


@pytest.mark.parametrize(
    ("method", "action"),
    [
        (f"/inference.GRPCInferenceService/{UNLOAD}", "unload"),
        (f"/inference.GRPCInferenceService/{LOAD}", "load"),
        ("/grps.protos.v1.GrpsService/Offline", "offline"),
        ("/grps.protos.v1.GrpsService/Online", "online"),
    ],
)
def test_admin_calls_are_audited_with_client_and_outcome(peer: GrpcTestClient, method: str, action: str) -> None:
    kserve = "inference" in method
    data = message("RepositoryModelUnloadRequest", model_name=ECHO).SerializeToString() if kserve else b""
    line = audited(peer, method, data, [*bearer(ADMIN_KEY), ("x-request-id", "r-7")])
    model = ECHO if kserve else ""
    expected = {"event": "audit", "log_level": "info", "action": action, "model": model, "address": "127.0.0.1"}
    assert line == {**expected, "outcome": "ok", "status": "OK", "client": "operator", "request_id": "r-7"}
    # The message of an unauthenticated client is not read.
    rejected = ((INFER_KEY, "PERMISSION_DENIED", "camera", model), ("wrong", "UNAUTHENTICATED", "anonymous", ""))
    for key, status, name, read_model in rejected:
        line = audited(peer, method, data, bearer(key))
        line.pop("request_id")
        assert line == {**expected, "outcome": "refused", "status": status, "client": name, "model": read_model}


def test_failed_admin_calls_are_audited(peer: GrpcTestClient) -> None:
    data = message("RepositoryModelUnloadRequest", model_name="none").SerializeToString()
    line = audited(peer, f"/inference.GRPCInferenceService/{UNLOAD}", data, bearer(ADMIN_KEY))
    assert (line["outcome"], line["status"], line["model"]) == ("failed", "NOT_FOUND", "none")
    assert line["request_id"]
    line = audited(peer, f"/inference.GRPCInferenceService/{UNLOAD}", b"\xff", bearer(ADMIN_KEY))
    assert (line["outcome"], line["status"], line["model"]) == ("failed", "INVALID_ARGUMENT", "")


def test_admin_call_without_authentication_is_audited_as_anonymous() -> None:
    with peer_of(None) as peer:
        line = audited(peer, "/grps.protos.v1.GrpsService/Online", b"", [])
        assert (line["outcome"], line["client"]) == ("ok", "anonymous")
