"""What the application adds to every protocol's answers."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.support.served import build

Client = TestClient[Litestar]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(build(["half_plus_two"])) as client:
        yield client


def answer(client: Client, count: int, encoding: str) -> tuple[str | None, int]:
    """How an answer of `count` numbers is encoded, and how long it is without that."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [count], "data": [1] * count}
    headers = {"accept-encoding": encoding}
    response = client.post("/v2/models/half_plus_two/infer", json={"inputs": [tensor]}, headers=headers)
    assert response.json()["outputs"][0]["data"] == [2.5] * count
    return response.headers.get("content-encoding"), len(response.content)


def test_answers_of_a_kilobyte_are_gzipped_for_those_who_ask(client: Client) -> None:
    frame = answer(client, 1, "identity")[1] - 3 + len("[1]")
    long = (1000 - frame) // len("2.5,") + 1
    assert 1000 <= answer(client, long, "identity")[1] <= 1010
    assert answer(client, long, "gzip")[0] == "gzip"
    assert answer(client, long, "identity")[0] is None
    assert answer(client, long - 10, "gzip")[0] is None


def test_metrics_have_one_charset(client: Client) -> None:
    (media_type, *parameters) = client.get("/metrics").headers["content-type"].split("; ")
    assert media_type == "text/plain"
    assert [each for each in parameters if each.startswith("charset")] == ["charset=utf-8"]
