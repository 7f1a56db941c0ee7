"""Settings for authentication, authorization and rate limits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt

from app.settings.environment import ACCESS, environment

__all__ = ("AccessSettings",)


@Parameter(name="*", group=ACCESS)
@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Authentication and rate limits. Without keys and tokens, every client may send requests."""

    api_keys: Annotated[Path | None, environment("CHARIOTEER_API_KEYS", show=True)] = None
    """File of API keys, written by `charioteer keys`. Requests without a valid key or token get 401."""

    jwks: Annotated[Path | None, environment("CHARIOTEER_JWKS")] = None
    """File with the public keys (JWKS) of the issuer of tokens (JWT). Needs the extra jwt, an issuer, an audience."""

    jwt_issuer: Annotated[str | None, environment("CHARIOTEER_JWT_ISSUER")] = None
    """Required issuer of tokens, `iss`."""

    jwt_audience: Annotated[str | None, environment("CHARIOTEER_JWT_AUDIENCE")] = None
    """Required audience of tokens: `aud`, or one of its values."""

    requests_per_second: Annotated[PositiveFloat | None, environment("CHARIOTEER_REQUESTS_PER_SECOND")] = None
    """Requests per second of each client, unless its key has its own limit; further ones get 429. Needs keys or
    tokens."""

    burst: Annotated[PositiveInt | None, environment("CHARIOTEER_BURST")] = None
    """Requests that a client may send at once after a pause; by default those of one second."""

    insecure: Annotated[bool, environment("CHARIOTEER_INSECURE", show=True)] = False
    """Whether to listen on a public address without authentication, because a proxy or service mesh authenticates
    clients."""

    cors_origins: Annotated[str, environment("CHARIOTEER_CORS_ORIGINS")] = ""
    """Origins whose web pages may read responses, separated by commas: https://app.example; never with cookies."""
