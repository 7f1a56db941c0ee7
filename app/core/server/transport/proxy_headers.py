"""Take the address of the client and the scheme from the headers of trusted proxies.

`FORWARDED_ALLOW_IPS` lists the trusted addresses and networks, separated by commas, as for uvicorn; ``*`` trusts every
address. Without it only proxies on this machine are trusted.
"""

import ipaddress
import os
from collections.abc import Sequence
from functools import cache

_VARIABLE = "FORWARDED_ALLOW_IPS"
_DEFAULT_TRUSTED = "127.0.0.1,::1"
_SCHEMES = ("http", "https")
_PORT_DIGITS = 5

Address = tuple[str, int]
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_and_scheme(
    headers: Sequence[tuple[bytes, bytes]], client: Address | None, scheme: str
) -> tuple[Address | None, str]:
    """Return the address of the client and the scheme that it used, behind trusted proxies."""
    schemes = [value for name, value in headers if name == b"x-forwarded-proto"]
    hops = [value for name, value in headers if name == b"x-forwarded-for"]
    if not (schemes or hops) or client is None or not _is_trusted(client[0]):
        return client, scheme
    forwarded_scheme = schemes[-1].decode("latin-1").strip() if schemes else ""
    if forwarded_scheme in _SCHEMES:
        scheme = forwarded_scheme
    # Each proxy appends an address, so the last one that is not a proxy is the client's.
    addresses = [_parse_address(hop) for hop in b",".join(hops).decode("latin-1").split(",")]
    is_unknown = (address for address in reversed(addresses) if not _is_trusted(address[0]))
    forwarded_client = next(is_unknown, addresses[0])
    return (forwarded_client if forwarded_client[0] else client), scheme


def _parse_address(text: str) -> Address:
    """Parse an address, an IPv4 address with a port, or an IPv6 address in brackets, with or without a port."""
    text = text.strip()
    if text.startswith("[") and "]" in text:
        host, _, port = text[1:].partition("]")
        return host, _port(port.removeprefix(":")) or 0
    host, _, port_text = text.partition(":")
    port_number = _port(port_text)
    return (text, 0) if port_number is None else (host, port_number)


def _port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS else None


def _is_trusted(host: str) -> bool:
    trusted = os.environ.get(_VARIABLE, _DEFAULT_TRUSTED)
    if trusted == "*":
        return True
    names, networks = _parse_trusted(trusted)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in names
    if isinstance(address, ipaddress.IPv6Address):
        # A server that listens on `::` sees IPv4 addresses in this form.
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)


@cache
def _parse_trusted(text: str) -> tuple[frozenset[str], Sequence[_Network]]:
    """Return the names and the networks in a list of trusted addresses."""
    names: set[str] = set()
    networks: list[_Network] = []
    for item in (part.strip() for part in text.split(",")):
        try:
            networks.append(ipaddress.ip_network(item))
        except ValueError:
            names.add(item)
    return frozenset(names), networks
