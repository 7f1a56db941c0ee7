"""Check that a server which others can reach authenticates its clients."""

import logging

from app.server.http.loopback import is_loopback_host
from app.settings.server import ServerSettings, SettingsError

_logger = logging.getLogger(__name__)


def check_bind_policy(settings: ServerSettings) -> None:
    """Check that a server which others can reach authenticates clients, or has `--insecure`.

    Raises:
        SettingsError: with the possible options.
    """
    authenticates = settings.api_keys or settings.jwks or settings.tls_client_ca
    if is_loopback_host(settings.host) or authenticates or settings.insecure:
        return
    raise SettingsError(
        f"Anyone who can reach {settings.host} could use, load and unload every model. Give --api-keys or --jwks to "
        "require a key or a token; --tls-client-ca to require client certificates; or --insecure if a proxy or a "
        "service mesh authenticates clients. On 127.0.0.1 no authentication is required"
    )


def warn_about_clear_text(settings: ServerSettings) -> None:
    """Warn if keys and tokens are sent without TLS, unless a proxy before the server adds it."""
    authenticates = settings.api_keys or settings.jwks
    if authenticates and settings.tls_cert is None and not is_loopback_host(settings.host):
        _logger.warning("authentication without TLS")


def cors_origins(settings: ServerSettings) -> list[str]:
    """Return the origins whose pages may read responses.

    Raises:
        SettingsError: if an origin is invalid. ``*`` is invalid: with it, pages of any site could unload models.
    """
    origins = [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]
    for origin in origins:
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https") or not authority or "/" in authority or origin != origin.lower():
            raise SettingsError(f"--cors-origins: expected origins such as https://app.example, got {origin!r}")
    return origins
