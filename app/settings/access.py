"""Who may ask, for what, and how often."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt

from app.settings.environment import environment

__all__ = ("AccessSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may ask. Without keys and without tokens, everybody who reaches the server."""

    api_keys: Annotated[Path | None, environment("CHARIOTEER_API_KEYS")] = None
    """A file of keys that `charioteer keys` makes: who shows none of them, nor a token, is refused with 401."""

    jwks: Annotated[Path | None, environment("CHARIOTEER_JWKS")] = None
    """A file with the public keys (JWKS) of who issues tokens (JWT). Needs the extra jwt, an issuer and an audience."""

    jwt_issuer: Annotated[str | None, environment("CHARIOTEER_JWT_ISSUER")] = None
    """What tokens have to have as their issuer, `iss`."""

    jwt_audience: Annotated[str | None, environment("CHARIOTEER_JWT_AUDIENCE")] = None
    """What tokens have to have as their audience, `aud`, or among them."""

    requests_per_second: Annotated[PositiveFloat | None, environment("CHARIOTEER_REQUESTS_PER_SECOND")] = None
    """Requests that each caller may make, unless its key says otherwise; more are refused with 429. Needs keys or
    tokens."""

    burst: Annotated[PositiveInt | None, environment("CHARIOTEER_BURST")] = None
    """So many of them may come at once after a pause; as many as in a second when absent."""

    insecure: Annotated[bool, environment("CHARIOTEER_INSECURE")] = False
    """Whether to listen on an address that others reach though nobody is asked who they are: a proxy or a mesh before
    it asks them."""

    cors_origins: Annotated[str, environment("CHARIOTEER_CORS_ORIGINS")] = ""
    """Origins whose pages may read answers, with commas between them: https://app.example; never with cookies."""
