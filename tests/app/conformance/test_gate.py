"""Headers for a gate, from options and from files."""

from pathlib import Path

import pytest

from app.conformance.gate import GateError, gate_headers


def test_a_file_goes_before_options(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.write_text("Authorization: Bearer a:b\n\n")
    assert gate_headers(["X-Tenant: a", "authorization: c"], file) == {"x-tenant": "a", "authorization": "Bearer a:b"}


@pytest.mark.parametrize("line", ["secret", ": secret", "a b: secret", "a: secr\xe9t", "a: secret\n"])
def test_what_is_no_header_is_not_shown(line: str) -> None:
    with pytest.raises(GateError, match=r'--header: Expected "Name: value" in line 2') as raised:
        gate_headers(["a: b", line])
    assert "secr" not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="No such file"):
        gate_headers([], tmp_path / "gate")
    (tmp_path / "gate").write_bytes(b"a: \xff")
    with pytest.raises(GateError, match="Expected ASCII"):
        gate_headers([], tmp_path / "gate")
