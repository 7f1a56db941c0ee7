"""Test KServe V1 where its golden cases say nothing: paths, model states, raw images and metadata."""

import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.server.http.asgi import create_app
from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_image, rectangle
from tests.support.servers.grpc_server import build_engine


def test_loading_model_is_listed_but_not_ready() -> None:
    app = create_app(build_engine(("detector",), loaded=False), [KServeV1()], CollectorRegistry(), 1000)
    with TestClient(app) as client:
        assert client.get("/v1/models").json()["models"] == ["detector"]
        for response in (
            client.get("/v1/models/detector"),
            client.post("/v1/models/detector:predict", json={"instances": [1]}),
        ):
            assert response.status_code == 503
            assert response.json() == {"error": "Model with name detector is not ready. not loaded yet"}


# Images


@pytest.mark.parametrize(("file_format", "media_type"), [("PNG", "image/png"), ("JPEG", "IMAGE/X-ANY; quality=high")])
def test_raw_image_body_is_accepted(client: Client, file_format: str, media_type: str) -> None:
    content = encode_image(rectangle(), file_format)
    response = client.post("/v1/models/detector:predict", content=content, headers={"content-type": media_type})
    ((detection,),) = response.json()["predictions"]
    assert detection["label"] == "red"


def test_metadata_is_returned_byte_for_byte(client: Client) -> None:
    text = b'{"extended_metadata" : [{"key":"\\u00e9","type":"float","value":1.50}],  "n": 1e400, "f": "caf\\udce9"}'
    body = b'{"instances":["%s",{"b64":"%s","parameters":{"metadata":%s}}]}' % (*[IMAGE.encode()] * 2, text)
    response = client.post("/v1/models/detector:predict", content=body)
    assert response.status_code == 200, response.text
    assert response.content.endswith(b'"parameters":[{},{"metadata":' + text + b"}]}")
