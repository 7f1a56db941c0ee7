"""The server's certificate: read, held against what it has to be, and read again when it is renewed."""

import logging
import ssl
import time
from pathlib import Path
from typing import Any

import grpc
import msgspec
from prometheus_client import CollectorRegistry, Gauge

from app.server.validity import not_after
from app.settings.server import ServerSettings, SettingsError

__all__ = ("LOOK_SECONDS", "Certificates", "certificates")

LOOK_SECONDS = 5.0
"""How often to look whether the files have changed."""

_logger = logging.getLogger(__name__)

Stamp = tuple[int, int, int] | None
Signature = tuple[Stamp, ...]


class _Loaded(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the files held at one time."""

    context: ssl.SSLContext
    grpc: grpc.ServerCertificateConfiguration
    expiry: float


class Certificates:
    """A certificate, its key, and the authorities of clients, as the files have them now.

    Args:
        cert: the certificate and its chain, PEM.
        key: its private key, PEM.
        client_ca: whoever connects has to show a certificate of one of these authorities, PEM; None for anybody.

    Raises:
        SettingsError: when the files cannot be used.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._seen: Signature = self._signature()
        self._current = self._load()
        if self.expiry < time.time():
            _logger.warning("the certificate of the server is no longer valid", extra={"file": str(cert)})

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake. What was agreed on with another one lives on."""
        return self._current.context

    @property
    def expiry(self) -> float:
        """Seconds since the epoch at which the certificate ends."""
        return self._current.expiry

    def look(self) -> bool:
        """Take the files as they are now if they have changed: whether they were taken.

        Files that cannot be used leave everything as it was, and are told of in the log once.
        """
        signature = self._signature()
        if signature == self._seen:
            return False
        try:
            loaded = self._load()
        except SettingsError as error:
            _logger.error("a renewed certificate cannot be used, the one before is kept", extra={"error": str(error)})
            self._seen = signature
            return False
        if self._signature() != signature:
            # Renewed while it was read: the parts may not belong together. The next look finds it at rest.
            return False
        self._current, self._seen = loaded, signature
        _logger.info("took a renewed certificate", extra={"expiry": loaded.expiry})
        return True

    def for_grpc(self) -> grpc.ServerCredentials:
        """Credentials of a gRPC server that follow the files as well."""
        first = told = self._current.grpc

        def changed() -> Any:
            # Asked before each handshake, by a thread of gRPC's.
            nonlocal told
            now = self._current.grpc
            if now is told:
                return None
            told = now
            return now

        return grpc.dynamic_ssl_server_credentials(first, changed, self._client_ca is not None)

    def show(self, metrics: CollectorRegistry) -> None:
        """Let metrics tell when the certificate ends."""
        name = "charioteer_certificate_expiry_timestamp_seconds"
        gauge = Gauge(name, "When the certificate of the server ends, in seconds since the epoch.", registry=metrics)
        gauge.set_function(lambda: self.expiry)

    def _load(self) -> _Loaded:
        cert, key = (_read(each, option) for each, option in ((self._cert, "--tls-cert"), (self._key, "--tls-key")))
        authorities = _read(self._client_ca, "--tls-client-ca") if self._client_ca is not None else None
        try:
            expiry = not_after(cert.decode("latin-1"))
        except ValueError as error:
            raise SettingsError(f"Expected a certificate (PEM) in {self._cert} of --tls-cert, got {error}") from None
        # What TLS 1.2 and 1.3 may agree on is left to Python's and OpenSSL's defaults.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # Only its server may ask for anything anew: each time costs it more than the client.
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self._cert, self._key, password=self._encrypted)
        except (ssl.SSLError, OSError) as error:
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                message = f"The key in {self._key} of --tls-key is not that of the certificate in {self._cert}"
            else:
                message = f"Expected the private key (PEM) of the certificate in {self._key} of --tls-key"
            raise SettingsError(message) from None
        if authorities is not None:
            try:
                context.load_verify_locations(cadata=authorities.decode("latin-1"))
            except (ssl.SSLError, ValueError):
                message = f"Expected certificates of authorities (PEM) in {self._client_ca} of --tls-client-ca"
                raise SettingsError(message) from None
            context.verify_mode = ssl.CERT_REQUIRED
        configuration = grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=authorities)
        return _Loaded(context=context, grpc=configuration, expiry=expiry)

    def _encrypted(self) -> bytes:
        raise SettingsError(f"Expected a key that is not encrypted in {self._key} of --tls-key")

    def _signature(self) -> Signature:
        """Changes with the files, also where they are links that are turned to others, as Kubernetes does."""
        return tuple(_stamp(each) for each in (self._cert, self._key, self._client_ca) if each is not None)


def certificates(settings: ServerSettings) -> Certificates | None:
    """Those of the settings; None where the server speaks no TLS.

    Raises:
        SettingsError: when the settings contradict each other, or the files cannot be used.
    """
    if settings.tls_cert is None and settings.tls_key is None:
        if settings.tls_client_ca is not None:
            raise SettingsError("--tls-client-ca needs --tls-cert and --tls-key")
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise SettingsError("--tls-cert and --tls-key need each other")
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"Cannot read {path} of {option}: {error.strerror}") from None


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
