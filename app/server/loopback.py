"""Whether a name is this machine's own."""

import ipaddress
from urllib.parse import urlsplit

__all__ = ("hostname_of", "names_loopback")


def names_loopback(host: str) -> bool:
    """Whether a host, without its port, is this machine's own: ``localhost``, or an address of the loopback range."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hostname_of(url: str) -> str:
    """The host that a URL names, without its port; empty where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
