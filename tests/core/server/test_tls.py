"""TLS with valid, broken and renewed certificates."""

import logging
import os
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry

from app.core.server.tls import Certificates, load_certificates, not_after
from app.core.settings.network import TransportSettings
from app.core.settings.server import ServerSettings, SettingsError
from tests.support.polling import wait_until
from tests.support.servers.certificate_authority import CertificateAuthority, peer_certificate_serial
from tests.support.servers.http_connections import (
    HttpTestServer,
    local_transport,
    parse_responses,
    read_until_closed,
    run_http_server,
)

LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def files(authority: CertificateAuthority) -> tuple[Path, Path]:
    return authority.issue("server")


@pytest.fixture
def server(files: tuple[Path, Path]) -> Iterator[HttpTestServer]:
    with run_http_server(certificates=Certificates(*files)) as running:
        yield running


def connect_tls(server: HttpTestServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(server.connect(), server_hostname="localhost")


@contextmanager
def tls_connection(
    files: tuple[Path, Path], authority: CertificateAuthority, settings: TransportSettings | None = None, **options: Any
) -> Generator[tuple[HttpTestServer, ssl.SSLSocket]]:
    """Run a server with a certificate, and connect to it."""
    with (
        run_http_server(settings, Certificates(*files), **options) as server,
        connect_tls(server, authority.context()) as connection,
    ):
        yield server, connection


def test_tls_1_2_and_1_3_are_served_with_forward_secrecy(
    server: HttpTestServer, authority: CertificateAuthority
) -> None:
    context = authority.context()
    with connect_tls(server, context) as connection:
        assert connection.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connect_tls(server, context) as connection:
        name = connection.cipher()
        assert name is not None
        assert name[0].startswith("ECDHE-")
        assert connection.version() == "TLSv1.2"


def test_tls_before_1_2_is_rejected(server: HttpTestServer, authority: CertificateAuthority) -> None:
    context = authority.context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        # Otherwise the client's OpenSSL rejects this version itself.
        context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):
        connect_tls(server, context)


def test_plain_http_on_a_tls_port_is_closed(server: HttpTestServer) -> None:
    assert b"HTTP/1.1" not in server.send_and_read(LAST)
    wait_until(lambda: not server.metric_value("charioteer_connections"))


def test_large_body_and_large_response_are_transferred_over_tls(
    server: HttpTestServer, authority: CertificateAuthority
) -> None:
    with connect_tls(server, authority.context()) as connection:
        body = b"x" * 3_000_000
        connection.sendall(
            b"POST /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n" + body
        )
        received = 0
        while chunk := connection.recv(1_000_000):
            received += len(chunk)
    assert received > 67_000_000


def test_idle_connection_is_closed_without_waiting_for_close_notify(
    files: tuple[Path, Path], authority: CertificateAuthority
) -> None:
    with tls_connection(files, authority, TransportSettings(keep_alive_timeout=0.5)) as (server, connection):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536)
        began = time.monotonic()
        wait_until(lambda: not server.metric_value("charioteer_connections"))
        assert time.monotonic() - began < 15, "uvloop waits 30 s"


def test_open_tls_connection_does_not_delay_the_stop(server: HttpTestServer, authority: CertificateAuthority) -> None:
    with connect_tls(server, authority.context()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536)
        server.stop()
        wait_until(lambda: not server.metric_value("charioteer_connections"))


class ShortShutdownLoop(uvloop.Loop):
    """Wait one second for close_notify instead of 30."""

    async def connect_accepted_socket(
        self, *args: Any, ssl_shutdown_timeout: float | None = None, **options: Any
    ) -> Any:
        timeout = 1.0 if ssl_shutdown_timeout is None else ssl_shutdown_timeout
        return await super().connect_accepted_socket(*args, ssl_shutdown_timeout=timeout, **options)


@pytest.mark.slow
def test_large_response_to_a_slow_client_is_sent_completely_before_close(
    files: tuple[Path, Path], authority: CertificateAuthority
) -> None:
    with tls_connection(files, authority, loop=ShortShutdownLoop) as (_, connection):
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received, pause = 0, threading.Event()
        while chunk := connection.recv(65536):
            received += len(chunk)
            if received < 1_000_000:
                pause.wait(0.05)
    assert received > 64_000_000


def test_client_ca_requires_a_valid_client_certificate(
    tmp_path: Path, authority: CertificateAuthority, files: tuple[Path, Path]
) -> None:
    clients, strangers = CertificateAuthority(tmp_path, "clients"), CertificateAuthority(tmp_path, "strangers")
    late = clients.issue("late", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    rejected_certificates = (None, strangers.issue("stranger"), late, authority.issue("other"))
    with run_http_server(TransportSettings(), Certificates(*files, clients.file)) as server:
        with connect_tls(server, authority.context(clients.issue("client"))) as connection:
            connection.sendall(LAST)
            assert parse_responses(read_until_closed(connection))[0][0] == 200
        for client_certificate in rejected_certificates:
            # With TLS 1.3, the client sees the rejection when it reads.
            with pytest.raises(OSError), connect_tls(server, authority.context(client_certificate)) as connection:  # noqa: PT012
                connection.sendall(LAST)
                if not connection.recv(1):
                    raise ConnectionResetError


def test_renewed_certificate_is_used_for_new_connections_only(
    authority: CertificateAuthority, files: tuple[Path, Path]
) -> None:
    certificates_in_use = Certificates(*files)
    with run_http_server(None, certificates_in_use) as server, connect_tls(server, authority.context()) as old:
        before = peer_certificate_serial(old)
        assert not certificates_in_use.reload_if_changed()
        authority.issue("server")
        assert certificates_in_use.reload_if_changed()
        assert not certificates_in_use.reload_if_changed()
        with connect_tls(server, authority.context()) as new:
            assert peer_certificate_serial(new) != before
        old.sendall(LAST)
        assert parse_responses(read_until_closed(old))[0][0] == 200


BREAK: Mapping[str, Callable[[Path, Path], object]] = {
    "truncated certificate": lambda cert, _: cert.write_bytes(cert.read_bytes()[:300]),
    "another key": lambda cert, key: CertificateAuthority(cert.parent, "another").issue("another")[1].replace(key),
    "no key": lambda _, key: key.unlink(),
}


@pytest.mark.parametrize("break_files", BREAK.values(), ids=BREAK)
def test_broken_renewal_keeps_the_certificate_and_is_logged_once(
    authority: CertificateAuthority,
    files: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
    break_files: Callable[[Path, Path], object],
) -> None:
    certificates_in_use = Certificates(*files)
    before = certificates_in_use.context
    break_files(*files)
    with caplog.at_level(logging.ERROR):
        assert not certificates_in_use.reload_if_changed()
        assert not certificates_in_use.reload_if_changed()
    assert [record.message for record in caplog.records] == ["certificate not renewed"]
    assert certificates_in_use.context is before
    authority.issue("server")
    assert certificates_in_use.reload_if_changed()


def test_client_ca_is_renewed(tmp_path: Path, authority: CertificateAuthority, files: tuple[Path, Path]) -> None:
    clients, others = CertificateAuthority(tmp_path, "clients"), CertificateAuthority(tmp_path, "others")
    certificates_in_use = Certificates(*files, clients.file)
    with run_http_server(TransportSettings(), certificates_in_use) as server:
        clients.file.write_bytes(others.file.read_bytes())
        assert certificates_in_use.reload_if_changed()
        with connect_tls(server, authority.context(others.issue("client"))) as connection:
            connection.sendall(LAST)
            assert parse_responses(read_until_closed(connection))[0][0] == 200


def test_certificate_expiry_is_a_metric(authority: CertificateAuthority) -> None:
    ends = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)
    metrics = CollectorRegistry()
    local_transport(certificates=Certificates(*authority.issue("server", not_after=ends)), metrics=metrics)
    assert metrics.get_sample_value("charioteer_certificate_expiry_timestamp_seconds") == ends.timestamp()


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2130])
def test_not_after_equals_that_of_cryptography(authority: CertificateAuthority, year: int) -> None:
    cert, _ = authority.issue("server", not_after=datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC))
    pem = cert.read_bytes()
    assert not_after(pem.decode()) == x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def test_expired_certificate_is_logged(authority: CertificateAuthority, caplog: pytest.LogCaptureFixture) -> None:
    Certificates(*authority.issue("server", not_after=datetime(2021, 1, 1, tzinfo=UTC)))
    assert "no longer valid" in caplog.text


def test_invalid_tls_settings_raise_settings_error_with_the_reason(
    tmp_path: Path, authority: CertificateAuthority, files: tuple[Path, Path]
) -> None:
    cert, key = files
    other = authority.issue("other")[1]
    not_pem, unreadable, encrypted, pipe = (tmp_path / name for name in ("nothing", "absent", "encrypted", "pipe"))
    os.mkfifo(pipe)
    not_pem.write_text("nothing")
    plain = load_pem_private_key(key.read_bytes(), None)
    encrypted.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    expected = {
        (cert, None, None): "--tls-cert and --tls-key need each other",
        (None, key, None): "--tls-cert and --tls-key need each other",
        (None, None, cert): "--tls-client-ca needs --tls-cert and --tls-key",
        (unreadable, key, None): f"Cannot read {unreadable} of --tls-cert: No such file or directory",
        (cert, unreadable, None): f"Cannot read {unreadable} of --tls-key: No such file or directory",
        (cert, key, unreadable): f"Cannot read {unreadable} of --tls-client-ca: No such file or directory",
        (pipe, key, None): f"Cannot read {pipe} of --tls-cert: it is not a file",
        (tmp_path, key, None): f"Cannot read {tmp_path} of --tls-cert: Is a directory",
        (not_pem, key, None): f"Expected a certificate (PEM) in {not_pem} of --tls-cert, got no certificate",
        (cert, not_pem, None): f"Expected the private key (PEM) of the certificate in {not_pem} of --tls-key",
        (cert, other, None): f"The key in {other} of --tls-key does not belong to the certificate in {cert}",
        (cert, encrypted, None): f"Expected a key that is not encrypted in {encrypted} of --tls-key",
        (cert, key, not_pem): f"Expected certificates of authorities (PEM) in {not_pem} of --tls-client-ca",
    }
    assert load_certificates(ServerSettings()) is None
    for (tls_cert, tls_key, tls_client_ca), message in expected.items():
        with pytest.raises(SettingsError) as caught:
            load_certificates(ServerSettings(tls_cert=tls_cert, tls_key=tls_key, tls_client_ca=tls_client_ca))
        assert str(caught.value) == message
