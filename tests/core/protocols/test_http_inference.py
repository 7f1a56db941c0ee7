"""Compressed requests and responses."""

import contextlib
import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.protocols.http_inference import decompress
from tasks.inference.error import InferenceError
from tests.support.data.chariot import Client, image_input, items
from tests.support.servers.apps import MAX_REQUEST_BYTES

BODY = json.dumps({"inputs": [image_input()]}).encode()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZIP", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY) + b"\0\0"),
        ("gzip", gzip.compress(BODY[:9]) + gzip.compress(b"") + b"\0" + gzip.compress(BODY[9:])),
        ("deflate", zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY, wbits=-15)),
        ("identity", BODY),
    ],
)
def test_compressed_bodies_are_read(client: Client, encoding: str, body: bytes) -> None:
    response = client.post("/v2/models/m-detector/infer", content=body, headers={"Content-Encoding": encoding})
    assert len(items(response)) == 1


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("gzip", BODY, 400, "not gzip"),
        ("gzip", gzip.compress(BODY)[:-9], 400, "truncated gzip data"),
        ("gzip", gzip.compress(BODY) + b"more", 400, "not gzip"),
        ("gzip", gzip.compress(b"") * 1001, 400, "1,000 gzip streams"),
        ("gzip", gzip.compress(b" " * MAX_REQUEST_BYTES) + gzip.compress(b" "), 413, "after decompression"),
        ("deflate", zlib.compress(BODY) * 2, 400, "1 deflate streams"),
        ("deflate", gzip.compress(BODY), 400, "not deflate"),
        ("br", b"x", 400, "'br'"),
        ("gzip", gzip.compress(b" " * (MAX_REQUEST_BYTES + 1)), 413, "after decompression"),
    ],
)
def test_bad_compression_is_rejected(client: Client, encoding: str, body: bytes, status: int, message: str) -> None:
    for path in ("/v2/models/m-detector/infer", "/v2/models/detector/infer"):
        response = client.post(path, content=body, headers={"Content-Encoding": encoding})
        assert response.status_code == status
        assert message in response.json()["error"]


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_decompressed_within_the_limit_or_rejected(body: bytes, encoding: str) -> None:
    with contextlib.suppress(InferenceError):
        assert len(decompress(body, encoding, 1000)) <= 1000
