"""Authentication headers, from options and from files."""

from pathlib import Path

import pytest

from app.conformance.client.auth_headers import HeaderError, read_headers


def test_header_file_overrides_options(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.write_text("Authorization: Bearer a:b\n\n")
    assert read_headers(["X-Tenant: a", "authorization: c"], file) == {"x-tenant": "a", "authorization": "Bearer a:b"}


@pytest.mark.parametrize("line", ["secret", ": secret", "a b: secret", "a: secr\xe9t", "a: secret\n"])
def test_invalid_header_is_rejected_without_showing_it(line: str) -> None:
    with pytest.raises(HeaderError, match=r'--header: Expected "Name: value" in line 2') as raised:
        read_headers(["a: b", line])
    assert "secr" not in str(raised.value)


def test_unreadable_header_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(HeaderError, match="No such file"):
        read_headers([], tmp_path / "gate")
    (tmp_path / "gate").write_bytes(b"a: \xff")
    with pytest.raises(HeaderError, match="Expected ASCII"):
        read_headers([], tmp_path / "gate")
