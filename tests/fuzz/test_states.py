"""A model that is loaded, unloaded, replaced, broken and taken away in any order, asked over every surface in between.

Its state is predicted: only a model that is loaded answers, with what its file was when it was loaded, and readiness is
said alike everywhere.
"""

import json
import shutil
import struct
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

from app.assembly.models import FIXTURE_MODELS
from app.proto import message_class
from tests.fuzz.server import fuzzed_server

NAME = "subject"
BROKEN, GONE = "broken", "gone"
FILES = {2.0: FIXTURE_MODELS / "half_plus_two", 3.0: FIXTURE_MODELS / "half_plus_three"}
V2, GRPS = "/inference.GRPCInferenceService/", "/grps.protos.v1.GrpsService/"
WAYS = st.sampled_from(["rest", "grpc", "page"])


class Surfaces:
    """One server, and every way to ask it about the one model it has.

    Args:
        folder: its model repository.
        address: of HTTP.
        tensorflow: of TensorFlow Serving's API.
        grpc_address: of gRPC.
    """

    def __init__(self, folder: Path, address: str, tensorflow: str, grpc_address: str) -> None:
        self.folder = folder
        self._http = httpx.Client(base_url=address, timeout=60)
        self._tensorflow = httpx.Client(base_url=tensorflow, timeout=60)
        self._channel: Any = grpc.insecure_channel(grpc_address)
        self._page = {"charioteer-page": address, "origin": address}
        self.asks: Mapping[str, Callable[[float], float | None]] = {
            "V2": self._v2, "V2 binary": self._v2_binary, "V2 gRPC": self._v2_grpc, "V1": self._v1,
            "TensorFlow Serving": self._tensorflow_serving, "GRPS": self._grps, "GRPS gRPC": self._grps_grpc,
        }  # fmt: skip

    def close(self) -> None:
        """End its connections."""
        self._http.close()
        self._tensorflow.close()
        self._channel.close()

    def put(self, content: float | str) -> None:
        """Have the model's file be what is called so."""
        model = self.folder / NAME
        if content == GONE:
            shutil.rmtree(model, ignore_errors=True)
            return
        model.mkdir(exist_ok=True)
        written = self.folder.parent / "written.onnx"
        written.write_bytes(
            (FILES[content] / "model.onnx").read_bytes() if isinstance(content, float) else b"\x08\x08rubbish"
        )
        written.replace(model / "model.onnx")

    def change(self, verb: str, way: str) -> bool:
        """Load or unload the model: whether that is said to be done."""
        if way == "grpc":
            request = message_class(f"inference.RepositoryModel{verb.title()}Request")(model_name=NAME)
            return self._called(f"{V2}RepositoryModel{verb.title()}", request) is not None
        path = f"/v2/repository/models/{NAME}/{verb}" if way == "rest" else f"/page/repository/{NAME}/{verb}"
        answer = self._http.post(path, headers=self._page if way == "page" else {})
        assert answer.status_code in (200, 404, 503), answer.text
        return answer.status_code == 200

    def switch(self, online: bool, way: str) -> None:
        """Say whether the server is online."""
        verb = "online" if online else "offline"
        if way == "grpc":
            assert self._called(f"{GRPS}{verb.title()}", message_class("grps.protos.v1.GrpsMessage")()) is not None
        else:
            assert self._http.post(f"/grps/v1/health/{verb}").status_code == 200

    def ready(self) -> Sequence[bool]:
        """What every surface says of the model's readiness."""
        found = [self._http.get(f"/v2/models/{NAME}{version}/ready").status_code for version in ("", "/versions/1")]
        found.append(self._http.get(f"/v1/models/{NAME}").status_code)
        assert set(found) <= {200, 404, 503}, found
        request = message_class("inference.ModelReadyRequest")(name=NAME)
        answer = self._called(f"{V2}ModelReady", request)
        over_grpc = (
            message_class("inference.ModelReadyResponse").FromString(answer).ready if answer is not None else False
        )
        return [*(status == 200 for status in found), over_grpc]

    def states(self) -> set[str]:
        """The model's state in every list of models."""
        listed = self._http.post("/v2/repository/index").json()
        shown = self._http.get("/page/repository").json()["versions"]
        return {entry["state"] for entry in [*listed, *shown] if entry["name"] == NAME}

    def _v2(self, x: float) -> float | None:
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}]}
        answer = self._http.post(f"/v2/models/{NAME}/infer", json=body)
        return _value(answer, lambda reply: reply["outputs"][0]["data"][0])

    def _v2_binary(self, x: float) -> float | None:
        tensor = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
        head = json.dumps({"inputs": [tensor]}).encode()
        headers = {"inference-header-content-length": str(len(head))}
        answer = self._http.post(f"/v2/models/{NAME}/infer", content=head + struct.pack("<f", x), headers=headers)
        return _value(answer, lambda reply: reply["outputs"][0]["data"][0])

    def _v2_grpc(self, x: float) -> float | None:
        request = message_class("inference.ModelInferRequest")(model_name=NAME)
        request.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(x)
        answer = self._called(f"{V2}ModelInfer", request)
        if answer is None:
            return None
        reply = message_class("inference.ModelInferResponse").FromString(answer)
        (value,) = reply.outputs[0].contents.fp32_contents
        return value

    def _v1(self, x: float) -> float | None:
        answer = self._http.post(f"/v1/models/{NAME}:predict", json={"instances": [x]})
        return _value(answer, lambda reply: reply["predictions"][0])

    def _tensorflow_serving(self, x: float) -> float | None:
        answer = self._tensorflow.post(f"/v1/models/{NAME}:predict", json={"instances": [x]})
        return _value(answer, lambda reply: reply["predictions"][0])

    def _grps(self, x: float) -> float | None:
        answer = self._http.post("/grps/v1/infer/predict", json={"model": NAME, "gtensors": {"tensors": [_tensor(x)]}})
        return _value(answer, lambda reply: reply["gtensors"]["tensors"][0]["flat_float32"][0])

    def _grps_grpc(self, x: float) -> float | None:
        tensor = {**_tensor(x), "dtype": 7}
        kind = message_class("grps.protos.v1.GrpsMessage")
        answer = self._called(f"{GRPS}Predict", kind(model=NAME, gtensors={"tensors": [tensor]}))
        reply = kind.FromString(answer)
        assert reply.status.code in (200, 404, 503), reply
        return reply.gtensors.tensors[0].flat_float32[0] if reply.status.code == 200 else None

    def _called(self, method: str, request: Any) -> bytes | None:
        try:
            return self._channel.unary_unary(method)(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            reply: Any = error
            assert reply.code().name in ("NOT_FOUND", "UNAVAILABLE"), reply
            return None


def _tensor(x: float) -> dict[str, Any]:
    return {"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [x]}


def _value(answer: httpx.Response, read: Callable[[Any], float]) -> float | None:
    assert answer.status_code in (200, 404, 503), answer.text
    return read(answer.json()) if answer.status_code == 200 else None


class OneModel(RuleBasedStateMachine):
    """What may be done, and what has to be true then."""

    surfaces: Surfaces

    def __init__(self) -> None:
        super().__init__()
        self.on_disk: float | str = 2.0
        self.loaded: float | None = 2.0
        self.online = True

    @initialize()
    def begin(self) -> None:
        self.surfaces.put(2.0)
        self.surfaces.switch(True, "rest")
        assert self.surfaces.change("load", "rest")

    @rule(content=st.sampled_from([2.0, 3.0, BROKEN, GONE]))
    def put(self, content: float | str) -> None:
        self.surfaces.put(content)
        self.on_disk = content

    @rule(way=WAYS)
    def load(self, way: str) -> None:
        fine = isinstance(self.on_disk, float)
        assert self.surfaces.change("load", way) is fine
        self.loaded = self.on_disk if isinstance(self.on_disk, float) else self.loaded

    @rule(way=WAYS)
    def unload(self, way: str) -> None:
        assert self.surfaces.change("unload", way)
        self.loaded = None

    @rule(online=st.booleans(), way=WAYS)
    def switch(self, online: bool, way: str) -> None:
        self.surfaces.switch(online, way)
        self.online = online

    @rule(x=st.integers(-100, 100))
    def ask(self, x: int) -> None:
        expected = None if self.loaded is None else x / 2 + self.loaded
        answers = {name: ask(float(x)) for name, ask in self.surfaces.asks.items()}
        assert set(answers.values()) == {expected}, answers

    @rule(content=st.sampled_from([2.0, 3.0]), way=WAYS)
    def load_while_asked(self, content: float, way: str) -> None:
        """Answers come from what was loaded before or from what is then, and no other, without one that is refused."""
        self.put(content)
        may_be = {content, self.loaded} - {None} or {content}
        refused = {None} if self.loaded is None else set[None]()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, 0.0) for ask in self.surfaces.asks.values() for _ in range(2)]
            self.load(way)
            found = {future.result() for future in asked}
        assert found <= may_be | refused

    @invariant()
    def readiness_never_lies(self) -> None:
        expected = self.loaded is not None and self.online
        ready = self.surfaces.ready()
        assert set(ready) == {expected}, (ready, self.loaded, self.online)

    @invariant()
    def lists_never_lie(self) -> None:
        expected = "READY" if self.loaded is not None else "UNAVAILABLE"
        assert self.surfaces.states() == {expected}


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surfaces]:
    folder = tmp_path_factory.mktemp("states") / "models"
    shutil.copytree(FILES[2.0], folder / NAME)
    with fuzzed_server(folder) as server:
        found = Surfaces(folder, server.address, server.tensorflow_serving_address, server.grpc_address)
        yield found
        found.close()


@pytest.mark.slow
def test_a_models_state_is_what_was_done_to_it(surfaces: Surfaces) -> None:
    class Machine(OneModel):
        pass

    Machine.surfaces = surfaces
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8, stateful_step_count=15, deadline=None, derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip
