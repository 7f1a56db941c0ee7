"""What the application adds to the responses of every protocol."""

from litestar import Litestar
from litestar.testing import TestClient

Client = TestClient[Litestar]


def encoding_and_length(client: Client, count: int, encoding: str) -> tuple[str | None, int]:
    """Return the content encoding of a response with `count` numbers, and its decoded length."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [count], "data": [1] * count}
    headers = {"accept-encoding": encoding}
    response = client.post("/v2/models/half_plus_two/infer", json={"inputs": [tensor]}, headers=headers)
    assert response.json()["outputs"][0]["data"] == [2.5] * count
    return response.headers.get("content-encoding"), len(response.content)


def test_responses_of_a_kilobyte_are_gzipped_if_the_client_accepts_it(client: Client) -> None:
    overhead = encoding_and_length(client, 1, "identity")[1] - 3 + len("[1]")
    count_of_kilobyte = (1000 - overhead) // len("2.5,") + 1
    assert 1000 <= encoding_and_length(client, count_of_kilobyte, "identity")[1] <= 1010
    assert encoding_and_length(client, count_of_kilobyte, "gzip")[0] == "gzip"
    for refusing in ("identity", "gzip;q=0", "gzip; q=0.000, identity"):
        assert encoding_and_length(client, count_of_kilobyte, refusing)[0] is None
    assert encoding_and_length(client, count_of_kilobyte, "identity;q=0, gzip;q=0.5")[0] == "gzip"
    assert encoding_and_length(client, count_of_kilobyte - 10, "gzip")[0] is None


def test_metrics_content_type_has_one_charset(client: Client) -> None:
    (media_type, *parameters) = client.get("/metrics").headers["content-type"].split("; ")
    assert media_type == "text/plain"
    assert [parameter for parameter in parameters if parameter.startswith("charset")] == ["charset=utf-8"]
