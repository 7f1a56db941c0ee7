"""Where a key or token is looked for, and what is none."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.access.credentials import credential_of
from app.server.access.identity import AccessError
from tasks.exchange.error import ErrorKind


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
def test_a_key_is_found_where_senders_put_it(headers: list[tuple[str, str]]) -> None:
    assert credential_of(headers) == "k-1"


def test_a_password_may_have_colons() -> None:
    assert credential_of([("authorization", basic("user:a:b"))]) == "a:b"


@pytest.mark.parametrize(
    ("headers", "reason", "said"),
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
def test_what_is_none_is_refused(headers: list[tuple[str, str]], reason: str, said: str) -> None:
    with pytest.raises(AccessError) as caught:
        credential_of(headers)
    assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    assert caught.value.reason == reason
    assert said in caught.value.message
    assert "k-1" not in caught.value.message


NAMES = st.sampled_from(["authorization", "x-api-key", "cookie", "x-request-id"])
VALUES = st.text(alphabet=st.characters(max_codepoint=255)) | st.sampled_from(["Basic Og==", "Bearer a", "Basic YTpi"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_whatever_comes_is_a_key_or_refused(headers: list[tuple[str, str]]) -> None:
    try:
        found = credential_of(headers)
    except AccessError:
        return
    assert 0 < len(found) <= 16_384
    assert sum(name in ("authorization", "x-api-key") for name, _ in headers) <= 1 or "x-api-key" in dict(headers)
