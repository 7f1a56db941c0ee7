"""Whether a server may listen where it is told to."""

import logging

from app.server.loopback import names_loopback
from app.settings.server import ServerSettings, SettingsError

__all__ = ("check_exposure", "cors_origins", "warn_of_clear_text")

_logger = logging.getLogger(__name__)


def check_exposure(settings: ServerSettings) -> None:
    """See that a server that others reach asks them who they are, or was told not to.

    Raises:
        SettingsError: with the ways out.
    """
    asked = settings.api_keys or settings.jwks or settings.tls_client_ca
    if names_loopback(settings.host) or asked or settings.insecure:
        return
    raise SettingsError(
        f"Whoever reaches {settings.host} could use, load and unload every model. Give --api-keys or --jwks, so that "
        "callers show a key or a token; --tls-client-ca, so that they show a certificate; or --insecure, where a proxy "
        "or a mesh before this server asks them. On 127.0.0.1 nothing of that is needed"
    )


def warn_of_clear_text(settings: ServerSettings) -> None:
    """Log it when keys and tokens can be read on their way, unless something before the server speaks TLS."""
    asked = settings.api_keys or settings.jwks
    if asked and settings.tls_cert is None and not names_loopback(settings.host):
        _logger.warning("keys and tokens come in clear text, unless a proxy before this server speaks TLS; --tls-cert")


def cors_origins(settings: ServerSettings) -> list[str]:
    """The origins whose pages may read answers.

    Raises:
        SettingsError: for what is no origin. All of them, ``*``, is none: the page of anybody could unload models.
    """
    found = [each.strip() for each in settings.cors_origins.split(",") if each.strip()]
    for each in found:
        scheme, _, rest = each.partition("://")
        if scheme not in ("http", "https") or not rest or "/" in rest or each != each.lower():
            raise SettingsError(f"--cors-origins: expected origins such as https://app.example, got {each!r}")
    return found
