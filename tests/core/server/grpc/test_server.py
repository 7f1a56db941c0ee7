"""The gRPC server: health, reflection, malformed messages, ports, options of connections and shutdown."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import structlog
from google.protobuf.descriptor_database import DescriptorDatabase
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from app.core.engine.models.servable import Servable
from app.core.proto import message_class
from app.core.server.auth.grpc_access import GrpcAccess
from app.core.server.grpc.server import GrpcServer, connection_options
from app.core.server.listen import ListenError
from app.core.settings.model import ModelSource
from app.core.settings.network import TransportSettings
from tasks.inference.tensor import Datatype, Tensor
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.support.protocols import GRPC_PROTOCOLS
from tests.support.servers.apps import ECHO_MODELS, echo_model
from tests.support.servers.auth_apps import READ_KEY, access_with_keys
from tests.support.servers.grpc_server import (
    SERVICE,
    GrpcTestClient,
    build_engine,
    build_engine_from_sources,
    local_settings,
    message,
    raises_status,
    run_grpc_server,
)

GRPS = "grps.protos.v1.GrpsService"
MESSAGES = {"inference.ModelInferRequest", "grps.protos.v1.GrpsMessage", "tensorflow.TensorProto"}
TENSORFLOW_SERVING = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
HEALTH = "/grpc.health.v1.Health"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def health(peer: GrpcTestClient, service: str = "") -> int:
    request = HealthCheckRequest(service=service).SerializeToString()
    return HealthCheckResponse.FromString(peer.call_bytes(f"{HEALTH}/Check", request)).status


def watch_health(peer: GrpcTestClient, service: str = "") -> Any:
    call = peer.channel.unary_stream(f"{HEALTH}/Watch")
    return call(HealthCheckRequest(service=service).SerializeToString(), timeout=30)


def reflect(peer: GrpcTestClient, *requests: ServerReflectionRequest) -> Sequence[ServerReflectionResponse]:
    call = peer.channel.stream_stream(REFLECTION)
    responses = call(iter([request.SerializeToString() for request in requests]), timeout=30)
    return [ServerReflectionResponse.FromString(data) for data in responses]


def test_health_check_and_watch_follow_the_models() -> None:
    engine = build_engine(("echo-fp32",), loaded=False)
    with run_grpc_server(engine) as peer:
        updates = watch_health(peer)
        assert HealthCheckResponse.FromString(next(updates)).status == NOT_SERVING
        assert health(peer) == health(peer, SERVICE) == NOT_SERVING
        source = engine.registry.registrations[0].source
        engine.registry.load(source, lambda _: echo_model(ECHO_MODELS["echo-fp32"]))
        assert health(peer) == health(peer, SERVICE) == SERVING
        assert HealthCheckResponse.FromString(next(updates)).status == SERVING
        peer.stop_server().result(60)
        assert [HealthCheckResponse.FromString(data).status for data in updates] == [NOT_SERVING]


def test_health_of_an_unknown_service_is_not_found() -> None:
    with run_grpc_server(build_engine(("echo-fp32",))) as peer:
        with raises_status(grpc.StatusCode.NOT_FOUND):
            health(peer, "inference.Missing")
        updates = watch_health(peer, "inference.Missing")
        assert HealthCheckResponse.FromString(next(updates)).status == HealthCheckResponse.SERVICE_UNKNOWN
        updates.cancel()


def test_reflection_lists_all_services_with_their_descriptors() -> None:
    with run_grpc_server(build_engine(("echo-fp32",))) as peer:
        symbols = [
            *MESSAGES,
            SERVICE,
            GRPS,
            *TENSORFLOW_SERVING,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        ]
        requests = [ServerReflectionRequest(file_containing_symbol=symbol) for symbol in symbols]
        listed, *files = reflect(peer, ServerReflectionRequest(list_services=""), *requests)
    names = {service.name for service in listed.list_services_response.service}
    assert names == set(symbols) - MESSAGES
    database = DescriptorDatabase()
    for data in {data for file in files for data in file.file_descriptor_response.file_descriptor_proto}:
        database.Add(FileDescriptorProto.FromString(data))
    pool = DescriptorPool(database)
    for symbol in symbols:
        assert pool.FindFileContainingSymbol(symbol)


def test_reflection_finds_a_method_and_no_missing_symbol() -> None:
    symbols = (f"{SERVICE}.ModelInfer", f"{SERVICE}.Missing", "inference.Missing")
    requests = [ServerReflectionRequest(file_containing_symbol=symbol) for symbol in symbols]
    with run_grpc_server(build_engine(("echo-fp32",))) as peer:
        found, *missing = reflect(peer, *requests)
    assert found.HasField("file_descriptor_response")
    assert {answer.error_response.error_code for answer in missing} == {grpc.StatusCode.NOT_FOUND.value[0]}


@pytest.mark.parametrize("option", ["port", "second_port"])
def test_port_in_use_raises_listen_error(option: str) -> None:
    in_use: dict[str, Any] = {}
    with run_grpc_server(build_engine(("echo-fp32",))) as peer:
        in_use[option] = peer.port
        with (
            pytest.raises(ListenError, match=f"Cannot listen on 127.0.0.1:{peer.port}"),
            run_grpc_server(build_engine(("echo-fp32",)), **in_use),
        ):
            pass
        assert peer.call("ServerLive").live


def test_second_port_serves_the_same_services() -> None:
    with run_grpc_server(build_engine(("echo-fp32",)), second_port=0) as peer:
        assert peer.second_port != peer.port
        channel: Any = grpc.insecure_channel(f"127.0.0.1:{peer.second_port}")
        live = channel.unary_unary(f"/{SERVICE}/ServerLive")
        assert message_class("inference.ServerLiveResponse").FromString(live(b"", timeout=30)).live
        channel.close()


def test_stop_waits_for_calls_in_flight() -> None:
    started, proceed = threading.Event(), threading.Event()

    def slow(inputs: Sequence[TensorsInput]) -> Sequence[Tensors]:
        started.set()
        assert proceed.wait(60)
        data = np.zeros((1, 1), np.float32)
        return [Tensors([Tensor(name="x", datatype=Datatype.FP32, data=data)]) for _ in inputs]

    specs = ECHO_MODELS["echo-fp32"]
    servable = Servable(TensorInference(specs, specs), slow, echo_model(specs).description, {})
    source = ModelSource(name="slow", version="1", folder=Path("slow"))
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1]}
    request = message("ModelInferRequest", model_name="slow", inputs=[tensor], raw_input_contents=[bytes(4)])
    with run_grpc_server(build_engine_from_sources([source], lambda _: servable)) as peer:
        call = peer.channel.unary_unary(f"/{SERVICE}/ModelInfer")
        response = call.future(request.SerializeToString(), timeout=30)
        assert started.wait(60)
        stopped = peer.stop_server()
        assert not stopped.done()
        proceed.set()
        assert response.result(60) is not None
        stopped.result(60)


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


MALFORMED = b"\xff\xff\xff"
METHODS = (f"{HEALTH}/Check", f"{HEALTH}/Watch", REFLECTION)


@pytest.fixture(scope="module", params=[False, True], ids=["without access control", "with access control"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[GrpcTestClient]:
    keys: Path = tmp_path_factory.mktemp("keys")
    interceptors = [GrpcAccess(access_with_keys(keys), GRPC_PROTOCOLS)] if request.param else []
    with run_grpc_server(build_engine(("detector",)), interceptors=interceptors) as opened:
        yield opened


def send_malformed(peer: GrpcTestClient, method: str, metadata: list[tuple[str, str]]) -> None:
    """Send a malformed message, which is rejected."""
    is_stream = method == REFLECTION
    call: Any = peer.channel.stream_stream(method) if is_stream else peer.channel.unary_stream(method)
    with raises_status(grpc.StatusCode.INVALID_ARGUMENT, "The message cannot be parsed as protobuf"):
        list(call(iter([MALFORMED]) if is_stream else MALFORMED, metadata=metadata, timeout=30))


@pytest.mark.parametrize("method", METHODS)
def test_malformed_message_is_invalid_argument_and_logged_once(
    peer: GrpcTestClient, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        send_malformed(peer, method, [("x-api-key", READ_KEY)])
    assert [(line["event"], line["method"], line["address"]) for line in logs] == [
        ("malformed gRPC message", method, "127.0.0.1")
    ]
    assert not caplog.records


def test_log_lines_of_malformed_messages_without_a_key_are_sampled(
    peer: GrpcTestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(100):
            send_malformed(peer, METHODS[0], [])
    assert 1 <= len(logs) < 60
    assert not caplog.records
