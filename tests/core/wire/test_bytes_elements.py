"""Test that strings decode as base64 if the task wants bytes and as text if it wants text."""

import base64
import json
from contextlib import suppress
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.protocols.kserve_v2.binary import SniffedElement
from app.core.wire.bytes_elements import BinaryElement, StringElement, string_elements
from tasks.inference.error import InferenceError
from tests.support.rejection import rejects

LONG = bytes(range(256)) * 4


def base64_variants(data: bytes) -> dict[str, str]:
    plain = base64.b64encode(data).decode()
    return {
        "plain": plain,
        "URL-safe": base64.urlsafe_b64encode(data).decode(),
        "unpadded": plain.rstrip("="),
        "URL-safe and unpadded": base64.urlsafe_b64encode(data).decode().rstrip("="),
        "lines of 76": "\n".join(plain[i : i + 76] for i in range(0, len(plain), 76)),
        "MIME lines": base64.encodebytes(data).decode().replace("\n", "\r\n"),
        "spaces around": f" {plain}\t\n",
        "data URI": f"data:image/png;base64,{plain}",
        "data URI with parameters": f"data:image/png;name=a.png;base64,{plain}",
        "bare data URI": f"data:;base64,{plain}",
        "data URI in capitals": f" DATA:Image/PNG ;  Base64 ,{plain}",
        "percent-encoded data URI": f"data:;base64,{quote(plain, safe='')}#fragment",
        "data URI without base64": f"data:image/png,{quote(data)}#fragment",
        "bare data URI without base64": f"data:,{''.join(f'%{byte:02x}' for byte in data)}",
    }


def decode_elements(value: object) -> list[bytes]:
    raw = msgspec.Raw(json.dumps(value).encode())
    return [element.binary() for element in string_elements(raw, "data")]


@given(st.binary(max_size=300) | st.just(LONG))
def test_all_base64_variants_decode_to_the_same_bytes(data: bytes) -> None:
    for name, text in base64_variants(data).items():
        assert StringElement(text).binary() == data, name
        if "data URI" in name:
            assert SniffedElement(text.encode()).binary() == data, name
        assert decode_elements([text]) == [data], name
        assert decode_elements(text) == [data], name
        assert decode_elements([text, text]) == [data, data], name


@pytest.mark.parametrize(
    "text",
    ["!", "A", "AAAAA", "AA=A", "=AAA", "A\0AA", "é", "😀" * 100, "AAAA!", "data:image/png;base64,A", "data:AAAA",
     "data:image/png;base64", "DATA:;base64,AA%3DA", "<svg/>", "A" * 5001, "*" + "A" * 5000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_invalid_base64_is_rejected(text: str) -> None:
    for read in (StringElement(text).binary, lambda: decode_elements([text])):
        with pytest.raises(InferenceError, match=r"Expected (base64|a data URI)") as caught:
            read()
        assert len(caught.value.message) < 120, "a long text is not sent back"


@given(st.text(max_size=80).map("data:;base64,{}".format) | st.text(max_size=80).map("data:{}".format))
def test_any_data_url_is_decoded_or_rejected(text: str) -> None:
    with suppress(InferenceError):
        StringElement(text).binary()


@given(st.text(max_size=400) | st.just("AAAA" * 100))
def test_text_is_returned_unchanged(text: str) -> None:
    for value in ([text], text):
        (element,) = string_elements(msgspec.Raw(json.dumps(value).encode()), "data")
        assert element.text() == text


@pytest.mark.parametrize("count", [1, 300])
def test_valid_base64_text_can_be_read_as_text_or_bytes(count: int) -> None:
    (element,) = string_elements(msgspec.Raw(json.dumps(["what" * count]).encode()), "data")
    assert element.text() == "what" * count
    assert element.binary() == base64.b64decode("what" * count)


def test_escaped_slash_in_base64_is_unescaped() -> None:
    data = b"\xff\xff\xff" * 100
    raw = msgspec.Raw(json.dumps([base64.b64encode(data).decode()]).replace("/", "\\/").encode())
    assert [element.binary() for element in string_elements(raw, "data")] == [data]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"5", "inputs[0].data"), (b"null", "inputs[0].data"), (b"{}", "inputs[0].data"), (b"[5]", "inputs[0].data[0]"),
        (b'["AAAA", null]', "inputs[0].data[1]"), (b'[["AAAA"], [5]]', "inputs[0].data"), (b"[", "inputs[0].data"),
        (b'["' + b"A" * 400 + b'", 5]', "inputs[0].data[1]"), (b'["' + b"A" * 400 + b'",5,""]', "inputs[0].data[1]"),
    ],
    ids=lambda value: str(value)[:16],
)  # fmt: skip
def test_non_string_element_error_names_its_path(raw: bytes, path: str) -> None:
    with rejects(path=path):
        string_elements(msgspec.Raw(raw), "inputs[0].data")


def test_binary_element_is_text_only_if_valid_utf8() -> None:
    assert BinaryElement(b"\xff").binary() == b"\xff"
    assert BinaryElement("é".encode()).text() == "é"
    with pytest.raises(InferenceError, match="UTF-8"):
        BinaryElement(b"\xff").text()
