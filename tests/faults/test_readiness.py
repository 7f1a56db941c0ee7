"""Check that every readiness endpoint agrees with an inference, for each reason why a model cannot answer."""

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import QueueLimits
from app.core.hooks import Parts
from app.core.observers.metrics import StateMetrics
from app.core.protocols import CHARIOT_PROTOCOLS
from app.core.server.http.asgi import create_app, create_listener_app
from app.core.settings.model import ModelError, ModelSource
from app.plugins.grps.proto import message_class
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, Tensor
from tasks.task import TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tests.support.models.fake_models import stand_in_metadata
from tests.support.protocols import LISTENERS, main_port_protocols
from tests.support.servers.apps import ECHO_MODELS, echo_model
from tests.support.servers.grpc_server import GrpcTestClient, message, number_request, run_grpc_server

MODEL, OTHER_MODEL = "echo-fp32", "echo-int64"
GRPS: Any = message_class("grps.protos.v1.GrpsMessage")
LIVE_PATHS = ("/", "/health", "/v2/health/live", "/grps/v1/health/live")
BODY = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.5]}]}
SOURCES = [ModelSource(name=name, version="1", folder=Path("/srv/secret", name)) for name in (MODEL, OTHER_MODEL)]


class RecordSink:
    """Record every event immediately, or reject it."""

    unavailable_reason = ""

    def record(self, _: RequestContext, /) -> "Future[None] | None":
        recorded: Future[None] = Future()
        if self.unavailable_reason:
            recorded.set_exception(InferenceError(ErrorKind.MODEL_NOT_READY, self.unavailable_reason))
        else:
            recorded.set_result(None)
        return recorded


class HealthReporting:
    """A model that reports when it is unavailable, as an isolated model does."""

    unavailable_reason = ""

    def __call__(self, inputs: Sequence[TensorsInput], /) -> Sequence[Tensors]:
        if self.unavailable_reason:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, self.unavailable_reason)
        return [Tensors([Tensor(name="x", datatype=Datatype.FP32, data=sample.tensors["x"])]) for sample in inputs]


class FaultyServer:
    """An engine with faults that a test can switch on."""

    def __init__(self) -> None:
        self.record_sink, self.model = RecordSink(), HealthReporting()
        self.load_error = ""
        registry = Registry(SOURCES)
        self.engine = Engine(Repository(registry, lambda: SOURCES, self.load), Limits(), 2, QueueLimits())
        self.engine.attach(Parts(record_sink=self.record_sink))

    def load(self, source: ModelSource) -> Servable:
        if source.name != MODEL:
            return echo_model(ECHO_MODELS[source.name])
        if self.load_error:
            raise ModelError(self.load_error)
        specs = ECHO_MODELS[MODEL]
        return Servable(TensorInference(specs, specs), self.model, stand_in_metadata(TaskType.TENSOR), {})

    def start(self) -> None:
        for source in SOURCES:
            self.engine.registry.load(source, self.load)


def inject(fault: str, server: FaultyServer) -> None:
    """Start a server with a fault."""
    engine = server.engine
    if fault == "loading":
        engine.registry.load(SOURCES[1], server.load)
        return
    if fault == "load failed":
        server.load_error = "/srv/secret/echo-fp32/model.onnx is cut short"
    server.start()
    match fault:
        case "unloaded":
            asyncio.run(engine.repository.unload(MODEL))
        case "offline":
            engine.online = False
        case "stopping":
            engine.mark_not_ready()
        case "store full":
            server.record_sink.unavailable_reason = "The inference could not be recorded: its store is full"
        case "crashed":
            server.model.unavailable_reason = "Its process ended (signal 11) and is being restarted"
        case "reload failed":
            server.load_error = "cut short"
            with pytest.raises(InferenceError):
                asyncio.run(engine.repository.load(MODEL))
        case _:
            pass


@contextmanager
def surfaces(server: FaultyServer) -> Generator["Surfaces"]:
    engine, registry = server.engine, CollectorRegistry()
    StateMetrics(engine, registry)
    with ExitStack() as stack:
        main, lean = (
            stack.enter_context(TestClient(create_app(engine, main_port_protocols(name), registry, 2**20)))
            for name in CHARIOT_PROTOCOLS
        )
        tfs = stack.enter_context(TestClient(create_listener_app(engine, LISTENERS[0], 2**20)))
        peer = stack.enter_context(run_grpc_server(engine))
        yield Surfaces(main, lean, tfs, peer, registry)


class Surfaces:
    """Query all readiness endpoints of a server."""

    def __init__(self, main: Any, lean: Any, tfs: Any, peer: GrpcTestClient, registry: CollectorRegistry) -> None:
        self.main, self._lean, self._tfs, self.peer, self._registry = main, lean, tfs, peer, registry

    def server(self) -> dict[str, bool]:
        paths = ("/ready", "/v2/health/ready", "/grps/v1/health/ready")
        readiness = {path: self.main.get(path).status_code == 200 for path in paths}
        readiness |= {f"HEAD {path}": self.main.head(path).status_code == 200 for path in paths}
        readiness |= {f"chariot-v2: {path}": self._lean.get(path).status_code == 200 for path in paths}
        for service in ("", "inference.GRPCInferenceService", "grps.protos.v1.GrpsService"):
            request = HealthCheckRequest(service=service).SerializeToString()
            check = HealthCheckResponse.FromString(self.peer.call_bytes("/grpc.health.v1.Health/Check", request))
            readiness[f"grpc.health {service}"] = check.status == HealthCheckResponse.SERVING
        readiness["CheckReadiness"] = self.call_grps("CheckReadiness") == 200
        readiness["ServerReady"] = self.peer.call("ServerReady", message("ServerReadyRequest")).ready
        readiness["charioteer_ready"] = self._registry.get_sample_value("charioteer_ready") == 1
        return readiness

    def model(self) -> dict[str, bool]:
        state: Any = self._tfs.get(f"/v1/models/{MODEL}").json()["model_version_status"][0]
        return {
            "chariot": self.main.get(f"/v2/models/m-{MODEL}/ready").status_code == 200,
            "v2": self.main.get(f"/v2/models/{MODEL}/ready").status_code == 200,
            "v2 version": self.main.get(f"/v2/models/{MODEL}/versions/1/ready").status_code == 200,
            "v1": self.main.get(f"/v1/models/{MODEL}").status_code == 200,
            "tensorflow-serving": state["state"] == "AVAILABLE",
            "ModelReady": self.peer.call("ModelReady", message("ModelReadyRequest", name=MODEL)).ready,
        }

    def switch_over_rest(self, verb: str) -> int:
        return self.main.post(f"/grps/v1/health/{verb}").status_code

    def switch_over_grpc(self, verb: str) -> int:
        return self.call_grps(verb.title())

    def call_grps(self, method: str) -> int:
        """Return the status in the answer of a method of GRPS."""
        return GRPS.FromString(self.peer.call_bytes(f"/grps.protos.v1.GrpsService/{method}", b"")).status.code

    def is_answered(self) -> bool:
        """Return whether an inference succeeds; HTTP and gRPC must agree."""
        http = self.main.post(f"/v2/models/{MODEL}/infer", json=BODY).status_code
        assert http in (200, 503)
        try:
            self.peer.call("ModelInfer", number_request([1.5], MODEL))
        except grpc.RpcError as error:
            status: Any = error
            assert status.code() is grpc.StatusCode.UNAVAILABLE
            assert http == 503
            return False
        assert http == 200
        return True


@pytest.mark.parametrize(
    ("fault", "server_ready", "model_ready", "answered"),
    [
        ("none", True, True, True),
        ("loading", False, False, False),
        ("load failed", False, False, False),
        # A deliberately unloaded model does not make the server unready.
        ("unloaded", True, False, False),
        # Load balancers stop sending, but late requests are still answered.
        ("offline", False, False, True),
        ("stopping", False, False, True),
        ("store full", False, False, False),
        ("crashed", False, False, False),
        # The old version keeps serving.
        ("reload failed", True, True, True),
    ],
)
def test_readiness_agrees_with_inference(fault: str, server_ready: bool, model_ready: bool, answered: bool) -> None:
    server = FaultyServer()
    inject(fault, server)
    with surfaces(server) as found:
        assert set(found.server().values()) == {server_ready}, found.server()
        assert set(found.model().values()) == {model_ready}, found.model()
        assert found.is_answered() == answered
        assert {found.main.get(path).status_code for path in LIVE_PATHS} == {200}, "still alive"
        assert found.main.get("/v2/health/ready").json()["ready"] is server_ready
        paths = ("/ready", f"/v2/models/{MODEL}/ready", f"/v1/models/{MODEL}")
        texts = [found.main.get(path).text for path in paths]
        texts.append(found.main.post(f"/v2/models/{MODEL}/infer", json=BODY).text)
        assert not any("secret" in text for text in texts), "paths are not shown to clients"
    server.engine.close()


def test_recovered_model_is_ready_immediately() -> None:
    server = FaultyServer()
    server.start()
    with surfaces(server) as found:
        server.model.unavailable_reason = "It ended"
        assert not found.is_answered()
        assert not any(found.model().values())
        server.model.unavailable_reason = ""
        assert all([*found.model().values(), *found.server().values(), found.is_answered()])
    server.engine.close()


def test_every_protocol_takes_the_server_offline_and_online() -> None:
    server = FaultyServer()
    server.start()
    with surfaces(server) as found:
        for switch in (found.switch_over_rest, found.switch_over_grpc):
            for verb, ready in (("offline", False), ("offline", False), ("online", True)):
                assert switch(verb) == 200
                assert set(found.server().values()) == set(found.model().values()) == {ready}
    server.engine.close()
