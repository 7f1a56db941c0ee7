"""Mutators of HTTP requests with valid framing: method, target, headers, body and transfer."""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from tests.fuzz.images import FORMATS, encode_sample
from tests.fuzz.mutation.encodings import COMPRESSED
from tests.fuzz.mutation.images import invalid_image, mutate_image
from tests.fuzz.mutation.json_values import mutate_json
from tests.fuzz.mutation.octets import mutate_octets
from tests.fuzz.requests import Http

_METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"PROPFIND", b"QUERY")
_SEGMENTS = (
    b"", b".", b"..", b"%2e%2e", b"%2F", b"%00", b"%ff%fe", b"%C3%A9", b"%zz", b"%", b"+", b"a" * 3000, b"missing",
    b"detector", b"m-detector",
    b"m-", b"half_plus_two", b"echo-int8", b"versions", b"0", b"-1", b"1", b"01", b"99999999999999999999", b"1e3",
    b"%F0%9F%98%80", b"%0d%0aX:%201",
    b"..%5c..", b"__class__", b"ready", b"infer", b"generate", b"labels", b"metadata", b"detector:predict",
    b"detector:", b":predict", b"a:b:c",
)  # fmt: skip
_QUERIES = (
    b"", b"&&&", b"=", b"a=1&a=2", b"streaming=true", b"streaming=maybe", b"return-ndarray=true", b"model=missing",
    b"model=detector", b"model=",
    b"top_k=-1", b"top_k=1e9", b"score_threshold=nan", b"labels=%00", b"prompts=%ff", b"x=" + b"a" * 5000,
    b"&".join(b"k%d=v" % n for n in range(400)),
    b"limit=-1", b"limit=99999999999999999999", b"after=zzz", b"since=yesterday", b"near=1,2,3", b"box=a",
    b"polygon=", b"min-score=x", b"name=%2A",
)  # fmt: skip
_TYPES = (
    b"application/json", b"application/octet-stream", b"application/jsonl", b"application/cloudevents+json",
    b"application/cloudevents-batch+json",
    b"image/png", b"image/jpeg", b"image/*", b"text/plain", b"multipart/form-data",
    b"application/x-www-form-urlencoded", b"application/grpc",
    b"application/json; charset=utf-16", b"application/json;;;", b"/", b"", b"*/*", b"\xff", b"a" * 2000,
    b"multipart/form-data; boundary=x",
)  # fmt: skip
_HEADERS: tuple[tuple[bytes, tuple[bytes, ...]], ...] = (
    (b"x-request-id", (b"", b"a" * 900, b"a" * 20_000, b"\xff\xfe", b"a b\tc", b"%0d%0a", b"1" * 200)),
    (b"x-base-id", (b"", b"b" * 5000, b"\xe9")),
    (b"inference-id", (b"x", b"")),
    (b"traceparent", (b"", b"00-0-0-00", b"00-" + b"f" * 32 + b"-" + b"f" * 16 + b"-01", b"zz")),
    (b"accept", (b"", b"text/html", b"application/json;q=nan", b"image/png", b"*/*;q=2", b"," * 500)),
    (b"accept-encoding", (b"gzip", b"gzip;q=0, *;q=1", b"br", b"identity;q=0", b"\xff")),
    (b"timeout", (b"0", b"-1", b"nan", b"1e999", b"0.000001", b"a", b"10S")),
    (b"x-request-timeout", (b"0.0001", b"-1", b"nan", b"a")),
    (b"request-timeout", (b"0.0001", b"0", b"inf", b"")),
    (b"host", (b"evil.example", b"", b"127.0.0.1:99999", b"a" * 900, b"[::1")),
    (b"origin", (b"http://evil.example", b"null", b"\xff")),
    (b"sec-fetch-site", (b"cross-site", b"same-origin")),
    (b"ce-id", (b"1", b"", b"\xff")),
    (b"ce-specversion", (b"1.0", b"0.3", b"x")),
    (b"ce-type", (b"a",)),
    (b"ce-source", (b"s", b"")),
    (b"authorization", (b"Bearer x", b"Basic " + b"A" * 3000, b"Bearer", b"\xff")),
    (b"x-api-key", (b"", b"a" * 9000)),
    (b"cookie", (b"a=b; " * 300,)),
    (b"range", (b"bytes=0-", b"bytes=-1,2-3")),
    (b"if-none-match", (b"*", b'"x"')),
    (b"connection", (b"close", b"keep-alive, x", b"upgrade")),
    (b"forwarded", (b"for=unknown;host=x",)),
    (b"x-forwarded-for", (b"::1, 1.2.3.4", b"a" * 900)),
    (b"expect", (b"100-continue",)),
)
_LENGTHS = (
    b"0",
    b"1",
    b"-1",
    b"+5",
    b"007",
    b"1e2",
    b"abc",
    b"",
    b"99999999999",
    b"99999999999999999999999",
    b"2147483648",
    b"\xd9\xa3",
    b"0x10",
    b" 5",
)
_SPLITS = ((1,), (1, 2, 3), (16384,), (100_000,), (7,))


def _with(request: Http, name: bytes, *values: bytes) -> Http:
    others = tuple(header for header in request.headers if header[0] != name)
    return replace(request, headers=(*others, *((name, value) for value in values)))


def _method(request: Http, random: Random) -> Http:
    return replace(request, method=random.choice(_METHODS))


def _path(request: Http, random: Random) -> Http:
    path, mark, query = request.target.partition(b"?")
    parts = path.split(b"/")[1:]
    if b"repository" in parts:  # Only the spare model may be loaded and unloaded.
        parts = [b"v2", b"repository", b"models", random.choice((b"missing", b"..", b"%00", b"spare/x"))]
    index = random.randrange(len(parts))
    match random.randrange(5):
        case 0:
            parts[index] = random.choice(_SEGMENTS)
        case 1:
            parts.insert(index, random.choice(_SEGMENTS))
        case 2:
            del parts[index]
        case 3:
            parts[index] = parts[index].swapcase()
        case _:
            parts[index] = b"".join(b"%%%02x" % octet for octet in parts[index])
    return replace(request, target=b"/" + b"/".join(parts) + mark + query)


def _query(request: Http, random: Random) -> Http:
    added = random.choice(_QUERIES)
    return replace(request, target=request.target + (b"&" if b"?" in request.target else b"?") + added)


def _content_type(request: Http, random: Random) -> Http:
    return _with(request, b"content-type", *random.choices(_TYPES, k=random.choice((0, 1, 1, 1, 2))))


def _header(request: Http, random: Random) -> Http:
    name, values = random.choice(_HEADERS)
    if random.random() < 0.1:
        return replace(request, headers=(*request.headers, *((name, value) for value in values)))
    return _with(request, name, random.choice(values))


def _header_length(request: Http, random: Random) -> Http:
    similar = (str(max(len(request.head) + by, 0)).encode() for by in (-1, 1, len(request.tail), 10))
    return replace(request, header_length=random.choice((*_LENGTHS, *similar)))


def _no_header_length(request: Http, random: Random) -> Http:
    del random
    return replace(request, header_length=None if request.header_length else b"true")


def _tensor_bytes(request: Http, random: Random) -> Http:
    """Change element sizes, or the bytes of tensors."""
    lengths = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00")
    if random.random() < 0.4:
        index = 4 * random.randrange(len(request.tail) // 4 + 1)
        return replace(request, tail=request.tail[:index] + random.choice(lengths) + request.tail[index + 4 :])
    return replace(request, tail=mutate_octets(request.tail, random))


def _binary_sizes(request: Http, random: Random) -> Http:
    """Change the declared size or the shape of a tensor, or add data twice."""
    try:
        document: dict[str, Any] = json.loads(request.head)
        tensor = random.choice(document["inputs"])
        size = random.choice((0, -1, 1, 2**31, 2**63, 2**64, "4", 1.5, None, True, len(request.tail) + 1))
        tensor["parameters"] = {**(tensor.get("parameters") or {}), "binary_data_size": size}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return replace(request, tail=request.tail + b"\0")
    if random.random() < 0.3:
        tensor["shape"] = random.choice(([0], [-1], [2**31], [2**62, 4], [1] * 70, [], [65536, 65536], ["1"]))
    return replace(request, head=json.dumps(document).encode())


def _json(request: Http, random: Random) -> Http:
    mutated = mutate_json(request.head, random)
    return replace(request, head=mutated[1] if mutated else mutate_octets(request.head, random))


def _octets(request: Http, random: Random) -> Http:
    return replace(request, head=mutate_octets(request.head, random))


def _text_encoding(request: Http, random: Random) -> Http:
    text = request.head.decode(errors="replace")
    encoding = random.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp500"))
    return replace(request, head=text.encode(encoding, errors="replace"))


def _lines(request: Http, random: Random) -> Http:
    """Send several documents, one a line; some lines can be invalid."""
    line = request.head.replace(b"\n", b" ")
    lines = random.choices((line, line, line, b"", b"{}", b"null", b"[", b"\xff"), k=random.choice((1, 2, 5, 60)))
    ending = random.choice((b"\n", b"\r\n", b"\r", b"\n\n"))
    return _with(replace(request, head=ending.join(lines)), b"content-type", b"application/jsonl")


def _image_body(request: Http, random: Random) -> Http:
    """Send an image as the body, valid or not."""
    body = random.choice(
        (mutate_image(random), mutate_image(random), invalid_image(random), encode_sample(random.choice(FORMATS)))
    )
    kind = random.choice((b"image/png", b"image/jpeg", b"application/octet-stream"))
    return _with(replace(request, head=body, tail=b"", header_length=None), b"content-type", kind)


def _compressed(request: Http, random: Random) -> Http:
    # Bombs are rare, because they are expensive to create.
    kinds = [name for name in COMPRESSED if name != "gzip bomb" or random.random() < 0.1]
    encoding, body = COMPRESSED[random.choice(kinds)](request.body, random)
    length = str(len(request.head)).encode() if request.header_length == b"true" else request.header_length
    return _with(replace(request, head=body, tail=b"", header_length=length), b"content-encoding", encoding)


def _chunked(request: Http, random: Random) -> Http:
    return replace(request, chunks=random.choice(_SPLITS) if len(request.body) < 20_000 else (16384,))


def _repeated_body(request: Http, random: Random) -> Http:
    """Repeat the body up to 1.6 MB."""
    return replace(request, head=request.head[:4000] * random.choice((100, 400)))


HTTP: Mapping[str, tuple[int, Callable[[Http, Random], Http]]] = {
    "JSON value": (30, _json),
    "JSON octets": (8, _octets),
    "text encoding": (1, _text_encoding),
    "JSON lines": (3, _lines),
    "image as body": (6, _image_body),
    "method": (3, _method),
    "path": (6, _path),
    "query": (4, _query),
    "content type": (4, _content_type),
    "header": (6, _header),
    "header length": (2, _header_length),
    "no header length": (1, _no_header_length),
    "tensor bytes": (4, _tensor_bytes),
    "binary sizes": (3, _binary_sizes),
    "compression": (3, _compressed),
    "chunks": (3, _chunked),
    "big": (1, _repeated_body),
}
"""Mutators with their weights, by name."""
