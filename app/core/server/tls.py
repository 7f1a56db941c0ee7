"""Load the server's certificate, validate it, and reload it when the files change."""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec

from app.core.server.auth.watched_file import FileStamp, file_stamp
from app.core.server.process_setup import repeating
from app.core.settings.files import read_regular_file
from app.core.settings.server import ServerSettings, SettingsError

_CHECK_SECONDS = 5.0
"""Seconds between two checks of the files."""

_logger = logging.getLogger(__name__)

_PEM = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d|\x18\x0f)(\d{12,14}Z)"
_VALIDITY = re.compile(rb"\x30[\x1e-\x22]" + _TIME * 2)
"""The validity of a certificate in DER (X.509, RFC 5280): a sequence of two times, with years of two or four digits."""


class _Loaded(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The content of the files at one time."""

    context: ssl.SSLContext
    grpc: grpc.ServerCertificateConfiguration
    expiry: float


class Certificates:
    """Hold the current certificate, its key, and the certificate authorities of clients.

    Raise SettingsError if the files are not usable.

    Args:
        cert: the certificate and its chain, PEM.
        key: its private key, PEM.
        client_ca: authorities that must have signed the certificates of clients, PEM; None accepts any client.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._checked_stamps: Sequence[FileStamp] = self._stamps()
        self._current = self._load()
        if self.expiry < time.time():
            _logger.warning("the certificate of the server is no longer valid", extra={"file": str(cert)})

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake; existing connections keep theirs."""
        return self._current.context

    @property
    def expiry(self) -> float:
        """Return the end of the certificate's validity, in seconds since the epoch."""
        return self._current.expiry

    def following(self, seconds: float = _CHECK_SECONDS) -> AbstractAsyncContextManager[None]:
        """While entered, reload renewed certificates every `seconds`. A thread reads the files: they can be slow."""
        return repeating(partial(asyncio.to_thread, self.reload_if_changed), seconds, "certificate not renewed")

    def reload_if_changed(self) -> bool:
        """Reload the files if they have changed. Return whether the certificate was replaced.

        Files that are not usable are logged once, and the current certificate is kept.
        """
        stamps = self._stamps()
        if stamps == self._checked_stamps:
            return False
        try:
            loaded = self._load()
        except SettingsError as error:
            _logger.error("certificate not renewed", extra={"error": str(error)})
            self._checked_stamps = stamps
            return False
        if self._stamps() != stamps:
            # The files changed during the read, so the parts may not match. The next check reads them again.
            return False
        self._current, self._checked_stamps = loaded, stamps
        _logger.info("certificate renewed", extra={"expiry": loaded.expiry})
        return True

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a gRPC server, which also follow the files."""
        initial = last_fetched = self._current.grpc

        def fetch_changed() -> Any:
            # A thread of gRPC calls this before each handshake.
            nonlocal last_fetched
            current = self._current.grpc
            if current is last_fetched:
                return None
            last_fetched = current
            return current

        return grpc.dynamic_ssl_server_credentials(initial, fetch_changed, self._client_ca is not None)

    def _load(self) -> _Loaded:
        cert, key = (_read(path, option) for path, option in ((self._cert, "--tls-cert"), (self._key, "--tls-key")))
        authorities = _read(self._client_ca, "--tls-client-ca") if self._client_ca is not None else None
        try:
            expiry = not_after(cert.decode("latin-1"))
        except ValueError as error:
            raise SettingsError(f"Expected a certificate (PEM) in {self._cert} of --tls-cert, got {error}") from None
        # The cipher suites of TLS 1.2 and 1.3 are the defaults of Python and OpenSSL.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A renegotiation costs the server more than the client, so clients must not request one.
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(self._cert, self._key, password=self._reject_encrypted_key)
        except (ssl.SSLError, OSError) as error:
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                message = f"The key in {self._key} of --tls-key does not belong to the certificate in {self._cert}"
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

    def _reject_encrypted_key(self) -> bytes:
        raise SettingsError(f"Expected a key that is not encrypted in {self._key} of --tls-key")

    def _stamps(self) -> Sequence[FileStamp]:
        return [file_stamp(path) for path in (self._cert, self._key, self._client_ca) if path is not None]


def not_after(pem: str) -> float:
    """Return the end of validity of the first certificate in `pem`, in seconds since the epoch.

    Raise ValueError if there is none, or it is truncated.
    """
    certificate = _PEM.search(pem)
    if certificate is None:
        raise ValueError("no certificate")
    validity = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(certificate[0]))
    if validity is None:
        raise ValueError("a certificate that is cut short")
    text = validity[2].decode()
    if len(text) == len("yymmddHHMMSSZ"):
        # Years of two digits mean 1950 to 2049.
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def load_certificates(settings: ServerSettings) -> Certificates | None:
    """Load the certificates of the settings; return None without TLS.

    Raise SettingsError if the settings contradict each other, or the files are not usable.
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
        return read_regular_file(path)
    except OSError as error:
        raise SettingsError(f"Cannot read {path} of {option}: {error.strerror}") from None
