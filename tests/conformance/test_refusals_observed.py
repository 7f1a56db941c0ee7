"""Check that every protocol notifies observers of requests whose body cannot be decompressed."""

import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.protocols import main_port_protocols
from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.server.asgi import create_app, create_listener_app
from tests.support.grpc_server import build_engine
from tests.support.scripted_model import EventRecorder


@pytest.mark.parametrize(
    ("protocol", "path"),
    [
        ("chariot-v2-kserve", "/v2/models/m-detector/infer"),
        ("chariot-v2", "/infer"),
        ("kserve-v2", "/v2/models/detector/infer"),
        ("kserve-v2", "/v2/models/detector/generate"),
        ("kserve-v1", "/v1/models/detector:predict"),
        ("kserve-v1", "/v1/models/detector:explain"),
        ("tensorflow-serving", "/v1/models/detector:predict"),
        ("grps", "/grps/v1/infer/predict?model=detector"),
    ],
)
@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"no gzip"), ("zstd", b"{}")])
def test_undecodable_body_is_rejected_and_observed(protocol: str, path: str, encoding: str, body: bytes) -> None:
    observer = EventRecorder()
    engine = build_engine(("detector",), observers=[observer])
    if protocol == "tensorflow-serving":
        app = create_listener_app(engine, TensorFlowServing(), 10_000)
    else:
        chariot_protocol = protocol if protocol.startswith("chariot") else "chariot-v2-kserve"
        app = create_app(engine, main_port_protocols(chariot_protocol), CollectorRegistry(), 10_000)
    with TestClient(app) as client:
        headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
        assert client.post(path, content=body, headers=headers).status_code == 400
    (event,) = observer.events
    assert (event.info.protocol, event.model_name) == (protocol, "detector")
    assert event.outcome is not None
    assert "Content-Encoding" in event.error
