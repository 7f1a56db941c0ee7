"""Check that every protocol notifies observers of requests whose body cannot be decompressed."""

import pytest
from litestar.testing import TestClient

from tests.support.models.scripted_model import EventRecorder
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.servers.apps import app_of_protocol
from tests.support.servers.grpc_server import build_engine


@pytest.mark.parametrize(
    ("protocol", "path"), [(name, path) for name, case in PROTOCOL_CASES.items() for path in case.observed]
)
@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"no gzip")])
def test_undecodable_body_is_rejected_and_observed(protocol: str, path: str, encoding: str, body: bytes) -> None:
    observer = EventRecorder()
    engine = build_engine(("detector",), observers=[observer])
    with TestClient(app_of_protocol(engine, protocol, 10_000)) as client:
        headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
        assert client.post(path, content=body, headers=headers).status_code == 400
    (event,) = observer.events
    assert (event.protocol, event.model_name) == (protocol, "detector")
    assert event.outcome is not None
    assert "Content-Encoding" in event.error
