"""Configure TLS for a client: trusted authorities and its own certificate."""

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
from cyclopts import Parameter
from cyclopts.types import ExistingFile

if TYPE_CHECKING:
    import grpc


class TlsOptionsError(Exception):
    """A certificate cannot be used. The message names it."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """TLS files of a client."""

    ca: ExistingFile | None = None
    """CA certificates to trust for TLS, instead of the usual ones (PEM)."""

    cert: ExistingFile | None = None
    """Client certificate (PEM)."""

    key: ExistingFile | None = None
    """Private key of the client certificate, if it is in another file."""

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for HTTP.

        Raises:
            TlsOptionsError: a file cannot be used.
        """
        if self.cert is None and self.key is not None:
            raise TlsOptionsError("--key needs --cert")
        try:
            is_default = self.ca is None
            context = (
                httpx.create_ssl_context(trust_env=False) if is_default else ssl.create_default_context(cafile=self.ca)
            )
        except ssl.SSLError:
            raise TlsOptionsError(f"--ca: {self.ca}: Expected certificates of authorities (PEM)") from None
        except OSError as error:
            raise TlsOptionsError(f"--ca: {self.ca}: {error.strerror}") from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except OSError as error:
                message = f"--cert: {self.cert}: Expected a certificate and its key, not encrypted (PEM): {error}"
                raise TlsOptionsError(message) from None
        return context

    def credentials(self) -> "grpc.ChannelCredentials":
        """Return the TLS credentials for gRPC.

        Raises:
            TlsOptionsError: a file cannot be used.
        """
        import grpc

        self.context()
        ca = self.ca.read_bytes() if self.ca is not None else None
        if self.cert is None:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(ca, (self.key or self.cert).read_bytes(), self.cert.read_bytes())
