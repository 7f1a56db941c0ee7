"""Recognise loopback host names."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback_host(host: str) -> bool:
    """Return whether a host, without its port, is loopback: ``localhost``, or an address of the loopback range."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hostname_of(url: str) -> str:
    """Return the host of a URL without its port; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
