"""Reading a key or token from the headers."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.server.auth.credentials import AccessError, credential_of
from tasks.inference.error import ErrorKind


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode('latin-1')).decode()}"


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer k-1")],
        [("authorization", "bearer   k-1 ")],
        [("authorization", "BEARER k-1")],
        [("authorization", basic("anybody:k-1"))],
        [("authorization", basic(":k-1"))],
        [("x-api-key", " k-1 ")],
        [("accept", "*/*"), ("x-api-key", "k-1"), ("authorization", "Bearer of a gateway")],
    ],
)
def test_key_is_read_from_authorization_and_x_api_key(headers: list[tuple[str, str]]) -> None:
    assert credential_of(headers) == "k-1"


def test_basic_password_may_contain_colons() -> None:
    assert credential_of([("authorization", basic("user:a:b"))]) == "a:b"


@pytest.mark.parametrize(
    ("headers", "reason", "error_text"),
    [
        ([], "missing", "got neither"),
        ([("api-key", "k"), ("cookie", "k")], "missing", "got neither"),
        ([("authorization", "")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Bearer")], "malformed", "Expected a key or a token in authorization, got none"),
        ([("authorization", "Bearer   ")], "malformed", "got none"),
        ([("authorization", "k-1")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Digest username=k-1")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Basic")], "malformed", "got none"),
        ([("authorization", "Basic !!!")], "malformed", "Expected base64"),
        ([("authorization", "Basic ä")], "malformed", "Expected base64"),
        ([("authorization", basic("no-colon"))], "malformed", "got none"),
        ([("x-api-key", "")], "malformed", "Expected a key or a token in x-api-key, got none"),
        ([("authorization", "Bearer k-1"), ("authorization", "Bearer k-1")], "malformed", "got it 2 times"),
        ([("x-api-key", "k-1"), ("x-api-key", "k-2"), ("x-api-key", "k-3")], "malformed", "got it 3 times"),
        ([("x-api-key", "k" * 16_385)], "malformed", "at most 16,384 characters"),
    ],
)
def test_missing_or_malformed_credential_is_rejected(
    headers: list[tuple[str, str]], reason: str, error_text: str
) -> None:
    with pytest.raises(AccessError) as caught:
        credential_of(headers)
    assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    assert caught.value.reason == reason
    assert error_text in caught.value.message
    assert "k-1" not in caught.value.message


NAMES = st.sampled_from(["authorization", "x-api-key", "cookie", "x-request-id"])
VALUES = st.text(alphabet=st.characters(max_codepoint=255)) | st.sampled_from(["Basic Og==", "Bearer a", "Basic YTpi"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_arbitrary_headers_yield_a_credential_or_access_error(headers: list[tuple[str, str]]) -> None:
    try:
        credential = credential_of(headers)
    except AccessError:
        return
    assert 0 < len(credential) <= 16_384
    assert sum(name in ("authorization", "x-api-key") for name, _ in headers) <= 1 or "x-api-key" in dict(headers)
