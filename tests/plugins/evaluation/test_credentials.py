"""Headers and certificates of the client."""

import ssl
from pathlib import Path

import pytest

from app.clients.credentials import CredentialsError, TlsOptions, read_headers
from tests.support.servers.certificate_authority import CertificateAuthority


def test_given_authority_replaces_the_default_authorities(tmp_path: Path) -> None:
    context = TlsOptions(ca=CertificateAuthority(tmp_path).file).context()
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_certificate_file_can_contain_the_key(tmp_path: Path) -> None:
    cert, key = CertificateAuthority(tmp_path).issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    assert TlsOptions(cert=both).credentials()
    assert TlsOptions(cert=cert, key=key).credentials()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ca": "nothing"}, "--ca: .*nothing: Expected certificates of authorities"),
        ({"ca": "absent"}, "No such file"),
        ({"cert": "nothing"}, "Expected a certificate and its key"),
        ({"key": "nothing"}, "--key needs --cert"),
    ],
)
def test_invalid_tls_files_are_rejected(tmp_path: Path, files: dict[str, str], message: str) -> None:
    (tmp_path / "nothing").write_text("nothing")
    with pytest.raises(CredentialsError, match=message):
        TlsOptions(**{name: tmp_path / file for name, file in files.items()}).credentials()


def test_header_file_overrides_options(tmp_path: Path) -> None:
    file = tmp_path / "gate"
    file.write_text("Authorization: Bearer a:b\n\n")
    assert read_headers(["X-Tenant: a", "authorization: c"], file) == {"x-tenant": "a", "authorization": "Bearer a:b"}


@pytest.mark.parametrize("line", ["secret", ": secret", "a b: secret", "a: secr\xe9t", "a: secret\n"])
def test_invalid_header_is_rejected_without_showing_it(line: str) -> None:
    with pytest.raises(CredentialsError, match=r'--header: Expected "Name: value" in line 2') as raised:
        read_headers(["a: b", line])
    assert "secr" not in str(raised.value)


def test_unreadable_header_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="No such file"):
        read_headers([], tmp_path / "gate")
    (tmp_path / "gate").write_bytes(b"a: \xff")
    with pytest.raises(CredentialsError, match="Expected ASCII"):
        read_headers([], tmp_path / "gate")
