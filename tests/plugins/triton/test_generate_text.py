"""Test V2's generate extension with a text generation model."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.support.servers.apps import app_with_models

PATH = "/v2/models/continuer"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(app_with_models(("continuer", "teller", "sorter"))) as client:
        yield client


def test_generate_continues_a_text(client: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "parameters": {"max_new_tokens": 6}, "temperature": 0.5, "id": "a"}
    response = client.post(f"{PATH}/generate", json=body)
    assert response.status_code == 200
    assert response.json() == {"model_name": "continuer", "model_version": "1", "text_output": "PROMPT", "id": "a"}


def test_generate_stream_sends_text_in_events(client: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "parameters": {"max_new_tokens": 6, "return_full_text": True}}
    response = client.post(f"{PATH}/generate_stream", json=body)
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]
    assert [event["text_output"] for event in events] == ["Prompt here", "Prompt"]


def test_parameters_override_those_at_top_level(client: TestClient[Litestar]) -> None:
    body = {"text_input": "Prompt here", "max_new_tokens": 1, "parameters": {"max_new_tokens": 2, "stream": True}}
    assert client.post(f"{PATH}/generate", json={**body, "unknown": 1}).json()["text_output"] == "Pr"


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "body", "status", "message"),
    [
        ("continuer", {"text_input": "a", "parameters": {"top_k": 0}}, 400, "parameters.top_k"),
        ("continuer", {"text_input": "a", "top_k": 0}, 400, "top_k"),
        ("continuer", {"text_input": "a", "max_new_tokens": 10**6}, 413, "max_new_tokens"),
        ("continuer", {"text_input": "a", "images": []}, 400, "images: Expected one image, got 0"),
        ("sorter", {"text_input": "a"}, 400, "does not generate text"),
    ],
)
def test_invalid_request_is_rejected(
    client: TestClient[Litestar], call: str, model: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = client.post(f"/v2/models/{model}/{call}", json=body)
    assert response.status_code == status
    assert message in response.json()["error"]
