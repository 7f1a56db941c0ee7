"""Credentials: API keys in a file, and JSON Web Tokens."""

from app.core.hooks import Command, Plugin, Ref
from app.plugins.access.jwt.settings import JwtSettings

plugin = Plugin(
    api=2,
    extra="jwt",
    settings=(JwtSettings,),
    commands=(
        Command(
            name="keys",
            run=Ref("app.plugins.access.keys.command:keys"),
            help="Create, list and remove API keys.",
            group="Serve",
        ),
    ),
    start=Ref("app.plugins.access.jwt.start:start"),
)
