"""The client and the scheme behind trusted proxies."""

import pytest

from app.core.server.transport.proxy_headers import client_and_scheme

PROXY = ("127.0.0.1", 5000)
STRANGER = ("10.0.0.9", 5000)


def forwarded(*hops: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", hop) for hop in hops]


def test_request_without_proxy_headers_keeps_its_connection() -> None:
    assert client_and_scheme([(b"host", b"a")], PROXY, "http") == (PROXY, "http")


def test_untrusted_proxy_changes_nothing() -> None:
    headers = [*forwarded(b"1.2.3.4"), (b"x-forwarded-proto", b"https")]
    assert client_and_scheme(headers, STRANGER, "http") == (STRANGER, "http")


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ([b"1.2.3.4"], ("1.2.3.4", 0)),
        ([b"1.2.3.4:77"], ("1.2.3.4", 77)),
        ([b"1.2.3.4:x"], ("1.2.3.4:x", 0)),
        ([b"[2001:db8::1]:77"], ("2001:db8::1", 77)),
        ([b"[2001:db8::1]"], ("2001:db8::1", 0)),
        ([b"2001:db8::1"], ("2001:db8::1", 0)),
        # The first address comes from the client, the last one from the nearest proxy.
        ([b"9.9.9.9, 1.2.3.4"], ("1.2.3.4", 0)),
        ([b"9.9.9.9", b"1.2.3.4"], ("1.2.3.4", 0)),
        ([b"1.2.3.4, 127.0.0.1"], ("1.2.3.4", 0)),
        ([b"::1, 127.0.0.1"], ("::1", 0)),
        ([b""], PROXY),
        ([b"unknown"], ("unknown", 0)),
    ],
)
def test_last_address_that_is_no_trusted_proxy_is_the_client(hops: list[bytes], expected: tuple[str, int]) -> None:
    assert client_and_scheme(forwarded(*hops), PROXY, "http") == (expected, "http")


@pytest.mark.parametrize(("value", "expected"), [(b"https", "https"), (b" http ", "http"), (b"gopher", "http")])
def test_trusted_proxy_sets_the_scheme(value: bytes, expected: str) -> None:
    assert client_and_scheme([(b"x-forwarded-proto", value)], PROXY, "http") == (PROXY, expected)


@pytest.mark.parametrize("trusted", ["10.0.0.0/8", "192.0.2.1, 10.0.0.9", "*"])
def test_environment_lists_the_trusted_proxies(trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    assert client_and_scheme(forwarded(b"1.2.3.4"), STRANGER, "http") == (("1.2.3.4", 0), "http")


@pytest.mark.parametrize(("proxy", "is_trusted"), [("::ffff:127.0.0.1", True), ("::ffff:10.0.0.9", False)])
def test_ipv4_proxy_of_a_server_on_ipv6_is_trusted_as_over_ipv4(proxy: str, is_trusted: bool) -> None:
    client, _ = client_and_scheme(forwarded(b"1.2.3.4"), (proxy, 5000), "http")
    assert client == (("1.2.3.4", 0) if is_trusted else (proxy, 5000))
