"""JSON Web Tokens as credentials."""

from app.core.hooks import Plugin, Ref
from app.plugins.jwt.settings import JwtSettings

plugin = Plugin(
    api=1,
    extra="jwt",
    settings=(JwtSettings,),
    start=Ref("app.plugins.jwt.start:start"),
)
