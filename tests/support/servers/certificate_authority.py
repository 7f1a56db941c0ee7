"""Issue test certificates from a certificate authority."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme


class CertificateAuthority:
    """A certificate authority that writes certificates into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *, not_after: datetime | None = None) -> tuple[Path, Path]:
        """Write a certificate for localhost with its chain, and its key; overwrite those of the same name."""
        not_before = datetime(2020, 1, 1, tzinfo=UTC)
        issued = self._ca.issue_cert("localhost", "127.0.0.1", not_before=not_before, not_after=not_after)
        cert, key = self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem"
        cert.write_bytes(b"".join(certificate.bytes() for certificate in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return cert, key

    def context(self, client_certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts this authority, with or without a client certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if client_certificate is not None:
            context.load_cert_chain(*client_certificate)
        return context


def peer_certificate_serial(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])
