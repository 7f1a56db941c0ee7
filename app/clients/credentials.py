"""Read the credentials of a client: request headers, TLS authorities and its own certificate."""

import os
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from cyclopts import Parameter
from cyclopts.types import ExistingFile

if TYPE_CHECKING:
    import grpc


_HEADER = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*:([\t -~]*)", re.ASCII)
"""RFC 9110, 5.6.2 and 5.5, in ASCII."""
_CA_VARIABLE = "SSL_CERT_FILE"
_FRAMING = ("content-length", "transfer-encoding")


class CredentialsError(Exception):
    """A header or a certificate cannot be used. The message does not quote a header, because it can be a secret."""


def read_headers(lines: Sequence[str], file: Path | None = None) -> dict[str, str]:
    """Return header values by lower-case name, from "Name: value" lines.

    A file, where secrets do not show in the process list, overrides options. Raise CredentialsError if
    a line is not a valid header, or the file cannot be read.
    """
    headers = _parse_headers(lines, "--header")
    if file is None:
        return headers
    try:
        file_lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "Expected ASCII"
        raise CredentialsError(f"--header-file: {file}: {reason}") from None
    return {**headers, **_parse_headers([line for line in file_lines if line.strip()], f"--header-file: {file}")}


def _parse_headers(lines: Sequence[str], option: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _HEADER.fullmatch(line)
        if not match:
            raise CredentialsError(f'{option}: Expected "Name: value" in line {number}')
        name = match[1].lower()
        if name in _FRAMING:
            raise CredentialsError(f"{option}: {name} describes a body, which differs from request to request")
        headers[name] = match[2].strip()
    return headers


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """TLS files of a client."""

    ca: ExistingFile | None = None
    """CA certificates to trust for TLS (PEM); by default the file of SSL_CERT_FILE, or the usual ones."""

    cert: ExistingFile | None = None
    """Client certificate (PEM)."""

    key: ExistingFile | None = None
    """Private key of the client certificate, if it is in another file."""

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for HTTP. Raise CredentialsError if a file cannot be used."""
        if self.cert is None and self.key is not None:
            raise CredentialsError("--key needs --cert")
        try:
            context = ssl.create_default_context(cafile=self.ca) if self.ca else httpx.create_ssl_context()
        except OSError as error:
            name = f"--ca: {self.ca}" if self.ca else f"{_CA_VARIABLE}: {os.environ.get(_CA_VARIABLE)}"
            is_content = isinstance(error, ssl.SSLError)
            reason = "Expected certificates of authorities (PEM)" if is_content else error.strerror
            raise CredentialsError(f"{name}: {reason}") from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except OSError as error:
                message = f"--cert: {self.cert}: Expected a certificate and its key, not encrypted (PEM): {error}"
                raise CredentialsError(message) from None
        return context

    def credentials(self) -> "grpc.ChannelCredentials":
        """Return the TLS credentials for gRPC. It raises what `context` raises."""
        import grpc

        self.context()
        variable = os.environ.get(_CA_VARIABLE)
        files = (self.ca or (Path(variable) if variable else None), self.key or self.cert, self.cert)
        return grpc.ssl_channel_credentials(*(file and file.read_bytes() for file in files))
