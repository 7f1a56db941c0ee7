"""Build requests as Chariot's clients do, and read the items of responses."""

from typing import Any, cast

import httpx
from litestar import Litestar
from litestar.testing import TestClient

from tests.support.data.images import encode_base64, encode_image, rectangle

Client = TestClient[Litestar]

IMAGE = encode_base64(encode_image(rectangle()))


def image_input(data: object = IMAGE, name: str = "image-0", **parameters: object) -> dict[str, Any]:
    """Return an input with base64 images and `parameters`."""
    elements = cast("list[object]", data) if isinstance(data, list) else [data]
    return {"name": name, "shape": [len(elements)], "datatype": "BYTES", "data": elements, "parameters": parameters}


def infer(client: Client, model: str, *inputs: dict[str, Any], **body: Any) -> httpx.Response:
    """Send POST to a model by its Chariot id."""
    return client.post(f"/v2/models/m-{model}/infer", json={"inputs": inputs, **body})


def items(response: httpx.Response, output: int = 0, sample: int = 0) -> list[dict[str, Any]]:
    """Return the items of one image of one output."""
    assert response.status_code == 200, response.text
    return response.json()["outputs"][output]["data"][sample]
