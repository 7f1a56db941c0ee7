"""Load, unload, replace, break and remove a model in any order, and send requests over every protocol in between.

The expected state is known: only a loaded model answers, with the file that it was loaded from, and all readiness
endpoints agree.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.core.settings.server import DEMO_MODELS
from app.plugins.grps.proto import message_class
from tests.support.servers.server_process import ServerProcess, run_server

NAME = "subject"
BROKEN, GONE = "broken", "gone"
FILES = {2.0: DEMO_MODELS / "half_plus_two", 3.0: DEMO_MODELS / "half_plus_three"}
V2, GRPS = "/inference.GRPCInferenceService/", "/grps.protos.v1.GrpsService/"
V2_TENSOR = {"name": "x", "shape": [1], "datatype": "FP32"}
PREDICT = f"/v1/models/{NAME}:predict"
TRANSPORTS = st.sampled_from(["rest", "grpc"])


class Clients:
    """Clients for all protocols of a server with one model, in the repository `folder`."""

    def __init__(self, folder: Path, server: ServerProcess) -> None:
        self.folder = folder
        self._http = httpx.Client(base_url=server.address, timeout=60)
        self._tensorflow = httpx.Client(base_url=server.tensorflow_serving_address, timeout=60)
        self._channel: Any = grpc.insecure_channel(server.grpc_address)
        self.infer_functions: Mapping[str, Callable[[float], float | None]] = {
            "V2": lambda x: self._post(f"/v2/models/{NAME}/infer", {"inputs": [{**V2_TENSOR, "data": [x]}]}),
            "V2 gRPC": self._v2_grpc,
            "V1": lambda x: self._post(PREDICT, {"instances": [x]}),
            "TensorFlow Serving": lambda x: _value(self._tensorflow.post(PREDICT, json={"instances": [x]})),
            "GRPS": lambda x: self._post(
                "/grps/v1/infer/predict", {"model": NAME, "gtensors": {"tensors": [_grps_tensor(x)]}}
            ),
            "GRPS gRPC": self._grps_grpc,
        }

    def close(self) -> None:
        self._http.close()
        self._tensorflow.close()
        self._channel.close()

    def put(self, content: float | str) -> None:
        model = self.folder / NAME
        if content == GONE:
            shutil.rmtree(model, ignore_errors=True)
            return
        model.mkdir(exist_ok=True)
        new_file = self.folder.parent / "written.onnx"
        new_file.write_bytes(
            (FILES[content] / "model.onnx").read_bytes() if isinstance(content, float) else b"\x08\x08rubbish"
        )
        new_file.replace(model / "model.onnx")

    def change(self, verb: str, transport: str) -> bool:
        """Load or unload the model, and return whether the server reports success."""
        if transport == "grpc":
            request = message_class(f"inference.RepositoryModel{verb.title()}Request")(model_name=NAME)
            return self._call(f"{V2}RepositoryModel{verb.title()}", request) is not None
        answer = self._http.post(f"/v2/repository/models/{NAME}/{verb}")
        assert answer.status_code in (200, 404, 503), answer.text
        return answer.status_code == 200

    def switch(self, online: bool, transport: str) -> None:
        verb = "online" if online else "offline"
        if transport == "grpc":
            assert self._call(f"{GRPS}{verb.title()}", message_class("grps.protos.v1.GrpsMessage")()) is not None
        else:
            assert self._http.post(f"/grps/v1/health/{verb}").status_code == 200

    def ready(self) -> Sequence[bool]:
        """Return the model's readiness from every endpoint."""
        statuses = [self._http.get(f"/v2/models/{NAME}{version}/ready").status_code for version in ("", "/versions/1")]
        statuses.append(self._http.get(f"/v1/models/{NAME}").status_code)
        assert set(statuses) <= {200, 404, 503}, statuses
        request = message_class("inference.ModelReadyRequest")(name=NAME)
        answer = self._call(f"{V2}ModelReady", request)
        over_grpc = (
            message_class("inference.ModelReadyResponse").FromString(answer).ready if answer is not None else False
        )
        return [*(status == 200 for status in statuses), over_grpc]

    def states(self) -> set[str]:
        index = self._http.post("/v2/repository/index").json()
        return {entry["state"] for entry in index if entry["name"] == NAME}

    def _post(self, path: str, body: object) -> float | None:
        return _value(self._http.post(path, json=body))

    def _v2_grpc(self, x: float) -> float | None:
        request = message_class("inference.ModelInferRequest")(model_name=NAME)
        request.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(x)
        answer = self._call(f"{V2}ModelInfer", request)
        if answer is None:
            return None
        reply = message_class("inference.ModelInferResponse").FromString(answer)
        (value,) = reply.outputs[0].contents.fp32_contents
        return value

    def _grps_grpc(self, x: float) -> float | None:
        tensor = {**_grps_tensor(x), "dtype": 7}
        kind = message_class("grps.protos.v1.GrpsMessage")
        answer = self._call(f"{GRPS}Predict", kind(model=NAME, gtensors={"tensors": [tensor]}))
        reply = kind.FromString(answer)
        assert reply.status.code in (200, 404, 503), reply
        return reply.gtensors.tensors[0].flat_float32[0] if reply.status.code == 200 else None

    def _call(self, method: str, request: Any) -> bytes | None:
        try:
            return self._channel.unary_unary(method)(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            reply: Any = error
            assert reply.code().name in ("NOT_FOUND", "UNAVAILABLE"), reply
            return None


def _grps_tensor(x: float) -> dict[str, Any]:
    return {"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [x]}


def _value(answer: httpx.Response) -> float | None:
    """Return the only number of an answer, or None for a rejection."""
    assert answer.status_code in (200, 404, 503), answer.text
    if answer.status_code != 200:
        return None
    match answer.json():
        case {"outputs": [{"data": [value]}]} | {"predictions": [value]}:
            return value
        case {"gtensors": {"tensors": [{"flat_float32": [value]}]}}:
            return value
        case reply:
            raise AssertionError(reply)


class ModelStateMachine(RuleBasedStateMachine):
    """Operations on one model, and invariants."""

    clients: Clients

    def __init__(self) -> None:
        super().__init__()
        self.on_disk: float | str = 2.0
        self.loaded: float | None = 2.0
        self.online = True

    @initialize()
    def begin(self) -> None:
        self.clients.put(2.0)
        self.clients.switch(True, "rest")
        assert self.clients.change("load", "rest")

    @rule(content=st.sampled_from([2.0, 3.0, BROKEN, GONE]))
    def put(self, content: float | str) -> None:
        self.clients.put(content)
        self.on_disk = content

    @rule(transport=TRANSPORTS)
    def load(self, transport: str) -> None:
        valid = isinstance(self.on_disk, float)
        assert self.clients.change("load", transport) is valid
        self.loaded = self.on_disk if isinstance(self.on_disk, float) else self.loaded

    @rule(transport=TRANSPORTS)
    def unload(self, transport: str) -> None:
        assert self.clients.change("unload", transport)
        self.loaded = None

    @rule(online=st.booleans(), transport=TRANSPORTS)
    def switch(self, online: bool, transport: str) -> None:
        self.clients.switch(online, transport)
        self.online = online

    @rule(x=st.integers(-100, 100))
    def infer(self, x: int) -> None:
        expected = None if self.loaded is None else x / 2 + self.loaded
        answers = {name: infer(float(x)) for name, infer in self.clients.infer_functions.items()}
        assert set(answers.values()) == {expected}, answers

    @rule(content=st.sampled_from([2.0, 3.0]), transport=TRANSPORTS)
    def load_during_requests(self, content: float, transport: str) -> None:
        """Load during requests: answers come from the old or the new version, and no request fails."""
        self.put(content)
        expected = {content, self.loaded} - {None} or {content}
        rejected = {None} if self.loaded is None else set[None]()
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(infer, 0.0) for infer in self.clients.infer_functions.values() for _ in range(2)]
            self.load(transport)
            answers = {future.result() for future in futures}
        assert answers <= expected | rejected

    @invariant()
    def readiness_matches_state(self) -> None:
        expected = self.loaded is not None and self.online
        ready = self.clients.ready()
        assert set(ready) == {expected}, (ready, self.loaded, self.online)

    @invariant()
    def lists_match_state(self) -> None:
        expected = "READY" if self.loaded is not None else "UNAVAILABLE"
        assert self.clients.states() == {expected}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    folder = tmp_path_factory.mktemp("states") / "models"
    shutil.copytree(FILES[2.0], folder / NAME)
    with run_server("--model-repository", str(folder)) as server:
        clients = Clients(folder, server)
        yield clients
        clients.close()


@pytest.mark.slow
def test_model_state_follows_operations(clients: Clients) -> None:
    class Machine(ModelStateMachine):
        pass

    Machine.clients = clients
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8, stateful_step_count=15, deadline=None, derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip
