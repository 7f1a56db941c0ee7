"""Whom a client trusts over TLS, and what it shows of itself."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import msgspec

if TYPE_CHECKING:
    import grpc

__all__ = ("Trust", "TrustError")


class TrustError(Exception):
    """Certificates that cannot be used. The message says which."""


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates of a client, as files (PEM).

    Attributes:
        ca: authorities to trust instead of the usual ones.
        cert: what is shown to a server that asks for a certificate, with its chain.
        key: its private key; in the same file when absent.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For HTTP.

        Raises:
            TrustError: when the files cannot be used.
        """
        if self.cert is None and self.key is not None:
            raise TrustError("--key needs --cert")
        try:
            usual = self.ca is None
            context = httpx.create_ssl_context(trust_env=False) if usual else ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise TrustError(f"--ca: {self.ca}: Expected certificates of authorities (PEM)") from None
        except OSError as error:
            raise TrustError(f"--ca: {self.ca}: {error.strerror}") from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except OSError as error:
                message = f"--cert: {self.cert}: Expected a certificate and its key, not encrypted (PEM): {error}"
                raise TrustError(message) from None
        return context

    def credentials(self) -> "grpc.ChannelCredentials":
        """For gRPC.

        Raises:
            TrustError: when the files cannot be used.
        """
        import grpc

        self.context()
        ca = self.ca.read_bytes() if self.ca is not None else None
        if self.cert is None:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(ca, (self.key or self.cert).read_bytes(), self.cert.read_bytes())
