"""Check that every protocol notifies observers of each request once, with the model and the outcome."""

import pytest
from litestar.testing import TestClient

from tasks.inference.error import ErrorKind
from tests.support.data.chariot import IMAGE
from tests.support.models.scripted_model import EventRecorder
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.servers.apps import app_of_protocol
from tests.support.servers.grpc_server import build_engine


@pytest.mark.parametrize("protocol", PROTOCOL_CASES)
def test_responses_and_rejections_are_observed(protocol: str) -> None:
    case, observer = PROTOCOL_CASES[protocol], EventRecorder()
    model = case.image_model
    headers = {"content-type": case.media_type, "x-request-id": "mine"}
    with TestClient(app_of_protocol(build_engine((model,), observers=[observer]), protocol, 100_000)) as client:
        for name in (model, "missing"):
            path, body = case.encode(case.infer(name, [IMAGE], {}))
            client.post(path, content=body, headers=headers)
        for path in case.observed:
            rejected = client.post(path, content=b"no gzip", headers={**headers, "content-encoding": "gzip"})
            assert rejected.status_code == 400
    answered, unknown, *rejections = observer.events
    assert (answered.model_name, answered.outcome, answered.batch_size) == (model, None, 1)
    # Over Chariot's protocols a server with one model answers for every name.
    assert unknown.outcome is (None if protocol.startswith("chariot") else ErrorKind.MODEL_NOT_FOUND)
    assert [(event.model_name, event.outcome) for event in rejections] == [
        (model, ErrorKind.INVALID_REQUEST) for _ in case.observed
    ]
    assert all("Content-Encoding" in event.error for event in rejections)
    assert {(event.protocol, event.request_id) for event in observer.events} == {(protocol, "mine")}
