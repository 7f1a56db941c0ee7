"""TLS with certificates that are good, bad, and renewed."""

import logging
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
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

from app.server.tls import Certificates, certificates
from app.server.validity import not_after
from app.settings.server import ServerSettings, SettingsError
from app.settings.transport import TransportSettings
from tests.support.authority import Authority, serial
from tests.support.http_connections import Served, answers, everything, served
from tests.support.polling import wait_until

LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("server")


@pytest.fixture
def server(files: tuple[Path, Path]) -> Iterator[Served]:
    with served(TransportSettings(handshake_timeout=0.5), Certificates(*files)) as running:
        yield running


def secured(server: Served, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(server.connect(), server_hostname="localhost")


def test_it_is_spoken_in_its_newest_version(server: Served, authority: Authority) -> None:
    with secured(server, authority.context()) as connection:
        assert connection.version() == "TLSv1.3"
        connection.sendall(LAST)
        assert answers(everything(connection))[0][0] == 200


def test_the_version_before_is_spoken_too_with_keys_that_are_forgotten(server: Served, authority: Authority) -> None:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with secured(server, context) as connection:
        name = connection.cipher()
        assert name is not None
        assert name[0].startswith("ECDHE-")
        assert connection.version() == "TLSv1.2"


def test_older_versions_are_not(server: Served, authority: Authority) -> None:
    context = authority.context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        # Otherwise this side's own OpenSSL would already refuse it.
        context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):
        secured(server, context)
    wait_until(lambda: bool(server.counted("charioteer_connections_ended_total", reason="handshake")))


def test_plain_http_is_not_answered_and_not_counted_for_ever(server: Served) -> None:
    received = server.exchange(LAST)
    assert b"HTTP/1.1" not in received
    wait_until(lambda: not server.counted("charioteer_connections"))
    assert server.counted("charioteer_connections_ended_total", reason="handshake") == 1


def test_who_never_agrees_on_anything_is_ended(server: Served) -> None:
    with closing(server.connect()) as connection:
        assert everything(connection) == b""
    wait_until(lambda: not server.counted("charioteer_connections"))


def test_connections_beyond_the_limit_are_closed_before_anything_is_agreed_on(files: tuple[Path, Path]) -> None:
    settings = TransportSettings(max_connections=1)
    with served(settings, Certificates(*files)) as server, closing(server.connect()):
        wait_until(lambda: bool(server.counted("charioteer_connections")))
        assert server.exchange(b"") == b""


@pytest.mark.slow
def test_who_takes_no_more_of_an_answer_is_ended_here_too(files: tuple[Path, Path], authority: Authority) -> None:
    settings = TransportSettings(write_timeout=0.5)
    with served(settings, Certificates(*files)) as server, secured(server, authority.context()) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_until(lambda: bool(server.counted("charioteer_connections_ended_total", reason="answer")))


def test_a_large_body_and_a_large_answer_go_through(server: Served, authority: Authority) -> None:
    with secured(server, authority.context()) as connection:
        body = b"x" * 3_000_000
        connection.sendall(
            b"POST /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n" + body
        )
        received = 0
        while piece := connection.recv(1_000_000):
            received += len(piece)
    assert received > 67_000_000


def test_who_never_says_goodbye_is_not_waited_for(files: tuple[Path, Path], authority: Authority) -> None:
    settings = TransportSettings(keep_alive_timeout=0.5)
    with served(settings, Certificates(*files)) as server, secured(server, authority.context()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536)
        wait_until(lambda: not server.counted("charioteer_connections"))
        assert server.counted("charioteer_connections_ended_total", reason="idle") == 1


def test_who_is_connected_does_not_keep_a_server_that_stops(files: tuple[Path, Path], authority: Authority) -> None:
    with served(None, Certificates(*files)) as server, secured(server, authority.context()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536)
        server.stop()
        wait_until(lambda: not server.counted("charioteer_connections"))


class Impatient(uvloop.Loop):
    """Gives whoever is to agree that TLS is over a second, where the original gives 30."""

    async def connect_accepted_socket(
        self, *args: Any, ssl_shutdown_timeout: float | None = None, **options: Any
    ) -> Any:
        patience = 1.0 if ssl_shutdown_timeout is None else ssl_shutdown_timeout
        return await super().connect_accepted_socket(*args, ssl_shutdown_timeout=patience, **options)


@pytest.mark.slow
def test_the_end_of_a_large_answer_is_waited_for(files: tuple[Path, Path], authority: Authority) -> None:
    with (
        served(None, Certificates(*files), loop=Impatient) as server,
        secured(server, authority.context()) as connection,
    ):
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received, pause = 0, threading.Event()
        while piece := connection.recv(65536):
            received += len(piece)
            if received < 1_000_000:
                pause.wait(0.05)
    assert received > 64_000_000


def test_certificates_are_demanded_where_an_authority_of_clients_is_named(
    tmp_path: Path, authority: Authority, files: tuple[Path, Path]
) -> None:
    clients, strangers = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    late = datetime(2021, 1, 1, tzinfo=UTC)
    refused = [None, strangers.issue("stranger"), clients.issue("late", not_after=late), authority.issue("other")]
    with served(TransportSettings(), Certificates(*files, clients.file)) as server:
        with secured(server, authority.context(clients.issue("client"))) as connection:
            connection.sendall(LAST)
            assert answers(everything(connection))[0][0] == 200
        for shown in refused:
            # With TLS 1.3, the client learns it when it reads.
            with pytest.raises(OSError), secured(server, authority.context(shown)) as connection:  # noqa: PT012
                connection.sendall(LAST)
                if not connection.recv(1):
                    raise ConnectionResetError


def test_a_renewed_certificate_is_shown_to_the_next_and_who_is_connected_goes_on(
    authority: Authority, files: tuple[Path, Path]
) -> None:
    found = Certificates(*files)
    with served(TransportSettings(), found) as server, secured(server, authority.context()) as old:
        before = serial(old)
        assert not found.look()
        authority.issue("server")
        assert found.look()
        assert not found.look()
        with secured(server, authority.context()) as new:
            assert serial(new) != before
        old.sendall(LAST)
        assert answers(everything(old))[0][0] == 200


def test_links_that_are_turned_are_a_renewal(tmp_path: Path, authority: Authority) -> None:
    """As Kubernetes does with secrets: the files are links through a link to a folder."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for path, kind in zip(authority.issue(name), ("tls.crt", "tls.key"), strict=True):
            path.rename(tmp_path / name / kind)
    (tmp_path / "..data").symlink_to("first")
    for kind in ("tls.crt", "tls.key"):
        (tmp_path / kind).symlink_to(f"..data/{kind}")
    found = Certificates(tmp_path / "tls.crt", tmp_path / "tls.key")
    before = found.context
    (tmp_path / "..new").symlink_to("second")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert found.look()
    assert found.context is not before


def _cut(cert: Path, key: Path) -> None:
    cert.write_bytes(cert.read_bytes()[:300])


def _of_another(cert: Path, key: Path) -> None:
    other = Authority(cert.parent, "another").issue("another")
    key.write_bytes(other[1].read_bytes())


def _gone(cert: Path, key: Path) -> None:
    key.unlink()


@pytest.mark.parametrize("broken", [_cut, _of_another, _gone])
def test_a_broken_renewal_keeps_the_certificate_and_is_told_of_once(
    authority: Authority,
    files: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
    broken: Callable[[Path, Path], None],
) -> None:
    found = Certificates(*files)
    before = found.context
    broken(*files)
    with caplog.at_level(logging.ERROR):
        assert not found.look()
        assert not found.look()
    assert [each.message for each in caplog.records] == ["a renewed certificate cannot be used, the one before is kept"]
    assert found.context is before
    authority.issue("server")
    assert found.look()


def test_authorities_of_clients_are_renewed_as_well(
    tmp_path: Path, authority: Authority, files: tuple[Path, Path]
) -> None:
    clients, others = Authority(tmp_path, "clients"), Authority(tmp_path, "others")
    found = Certificates(*files, clients.file)
    with served(TransportSettings(), found) as server:
        clients.file.write_bytes(others.file.read_bytes())
        assert found.look()
        with secured(server, authority.context(others.issue("client"))) as connection:
            connection.sendall(LAST)
            assert answers(everything(connection))[0][0] == 200


def test_its_end_is_a_metric(authority: Authority) -> None:
    ends = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)
    metrics = CollectorRegistry()
    Certificates(*authority.issue("server", not_after=ends)).show(metrics)
    assert metrics.get_sample_value("charioteer_certificate_expiry_timestamp_seconds") == ends.timestamp()


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2130])
def test_the_end_is_read_as_others_read_it(authority: Authority, year: int) -> None:
    cert, _ = authority.issue("server", not_after=datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC))
    pem = cert.read_bytes()
    assert not_after(pem.decode()) == x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


@pytest.mark.parametrize("written", ["", "nothing", "-----END CERTIFICATE----------BEGIN CERTIFICATE-----"])
def test_no_certificate_has_no_end(written: str) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        not_after(written)


def test_a_certificate_that_is_over_is_told_of(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    Certificates(*authority.issue("server", not_after=datetime(2021, 1, 1, tzinfo=UTC)))
    assert "no longer valid" in caplog.text


def test_contradictions_are_one_sentence(tmp_path: Path, authority: Authority, files: tuple[Path, Path]) -> None:
    cert, key = files
    other = authority.issue("other")[1]
    nothing = tmp_path / "nothing"
    nothing.write_text("nothing")
    unreadable = tmp_path / "absent"
    encrypted = tmp_path / "encrypted"
    plain = load_pem_private_key(key.read_bytes(), None)
    encrypted.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    expected = {
        (cert, None, None): "--tls-cert and --tls-key need each other",
        (None, key, None): "--tls-cert and --tls-key need each other",
        (None, None, cert): "--tls-client-ca needs --tls-cert and --tls-key",
        (unreadable, key, None): f"Cannot read {unreadable} of --tls-cert: No such file or directory",
        (cert, unreadable, None): f"Cannot read {unreadable} of --tls-key: No such file or directory",
        (cert, key, unreadable): f"Cannot read {unreadable} of --tls-client-ca: No such file or directory",
        (tmp_path, key, None): f"Cannot read {tmp_path} of --tls-cert: Is a directory",
        (nothing, key, None): f"Expected a certificate (PEM) in {nothing} of --tls-cert, got no certificate",
        (cert, nothing, None): f"Expected the private key (PEM) of the certificate in {nothing} of --tls-key",
        (cert, other, None): f"The key in {other} of --tls-key is not that of the certificate in {cert}",
        (cert, encrypted, None): f"Expected a key that is not encrypted in {encrypted} of --tls-key",
        (cert, key, nothing): f"Expected certificates of authorities (PEM) in {nothing} of --tls-client-ca",
    }
    for (tls_cert, tls_key, tls_client_ca), message in expected.items():
        with pytest.raises(SettingsError) as told:
            certificates(ServerSettings(tls_cert=tls_cert, tls_key=tls_key, tls_client_ca=tls_client_ca))
        assert str(told.value) == message


def test_without_settings_there_is_none() -> None:
    assert certificates(ServerSettings()) is None
