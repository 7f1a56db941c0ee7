"""Check that a server which others can reach authenticates its clients, and recognise loopback host names."""

import ipaddress
import logging
import re

from app.core.settings.server import ServerSettings, SettingsError

_logger = logging.getLogger(__name__)

# `urlsplit` also finds a host in `x@127.0.0.1` and in `[::1].example`, which are not valid in `Host`.
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*:[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


def check_bind_policy(settings: ServerSettings, *, authenticates: bool) -> None:
    """Check that a server which others can reach authenticates clients, or has `--insecure`.

    With `authenticates`, clients need a credential. Client certificates also authenticate them. Raise SettingsError
    with the possible options.
    """
    if is_loopback_host(settings.host) or authenticates or settings.tls_client_ca or settings.insecure:
        return
    raise SettingsError(
        f"Anyone who can reach {settings.host} could use, load and unload every model. Give --api-keys or --jwks to "
        "require a key or a token; --tls-client-ca to require client certificates; or --insecure if a proxy or a "
        "service mesh authenticates clients. On 127.0.0.1 no authentication is required"
    )


def warn_about_clear_text(settings: ServerSettings, *, authenticates: bool) -> None:
    """Warn if clients send credentials without TLS, unless a proxy before the server adds it."""
    if authenticates and settings.tls_cert is None and not is_loopback_host(settings.host):
        _logger.warning("authentication without TLS")


def is_loopback_host(host: str) -> bool:
    """Return whether a host, without its port, is loopback: ``localhost``, or an address of the loopback range."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hostname_of(authority: str) -> str:
    """Return the host of `Host`, or of an origin after its scheme, in lower case without its port; empty if invalid."""
    match = _AUTHORITY.fullmatch(authority)
    return (match["ipv6"] or match["name"]).lower() if match else ""
