"""Certificates of the client."""

import ssl
from pathlib import Path

import pytest

from app.conformance.client.tls import TlsOptions, TlsOptionsError
from tests.support.certificate_authority import CertificateAuthority


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
    with pytest.raises(TlsOptionsError, match=message):
        TlsOptions(**{name: tmp_path / file for name, file in files.items()}).credentials()
