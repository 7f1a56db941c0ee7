"""Options of `serve` for tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from app.core.settings.environment import ACCESS, environment


@Parameter(name="*", group=ACCESS)
@dataclass(frozen=True, kw_only=True)
class JwtSettings:
    """JSON Web Tokens as credentials."""

    jwks: Annotated[Path | None, environment("CHARIOTEER_JWKS")] = None
    """File with the public keys (JWKS) of the issuer of tokens (JWT). Needs the extra jwt, an issuer, an audience."""

    jwt_issuer: Annotated[str | None, environment("CHARIOTEER_JWT_ISSUER")] = None
    """Required issuer of tokens, `iss`."""

    jwt_audience: Annotated[str | None, environment("CHARIOTEER_JWT_AUDIENCE")] = None
    """Required audience of tokens: `aud`, or one of its values."""
