"""Add the tokens of an issuer to the accepted credentials, if the operator names its keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.engine.error_text import needs_extra
from app.core.hooks import Host, Parts
from app.core.server.auth.credentials import Identity
from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.server import SettingsError
from app.plugins.access.jwt.settings import JwtSettings

if TYPE_CHECKING:
    from app.plugins.access.jwt.validator import JwtValidator

_DOTS = 2
"""A token has three parts; API keys have no dot."""


@dataclass(frozen=True)
class Tokens:
    """Identify clients by tokens of one issuer. A changed file of its keys is reloaded."""

    validator: "WatchedFile[JwtValidator]"
    credential: str = "a JSON Web Token"

    def identify(self, credential: str) -> Identity | None:
        return self.validator.value.identify(credential) if credential.count(".") == _DOTS else None


def start(host: Host) -> Parts:
    """Return the identities of tokens.

    Raise SettingsError if options are missing, the keys are not readable, or the extra is not installed.
    """
    settings = host.settings.of(JwtSettings)
    issuer, audience = settings.jwt_issuer, settings.jwt_audience
    if settings.jwks is None:
        for name, value in (("issuer", issuer), ("audience", audience)):
            if value is not None:
                raise SettingsError(f"--jwt-{name} needs --jwks")
        return Parts()
    if not issuer or not audience:
        raise SettingsError(
            "--jwks needs --jwt-issuer and --jwt-audience: a token for another service is not for this one"
        )
    if settings.jwks.parts[:1] in (("http:",), ("https:",)):
        raise SettingsError(
            "--jwks: Expected a file, got a URL; save its key set, because the server downloads nothing"
        )
    with needs_extra("--jwks", "jwt", SettingsError):
        from app.plugins.access.jwt.validator import JwtValidator, read_key_set

    def read_validator(content: bytes) -> JwtValidator:
        return JwtValidator(read_key_set(content), issuer, audience)

    return Parts(identities=Tokens(WatchedFile(settings.jwks, read_validator, "--jwks")))
