"""JSON Web Tokens as credentials."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="jwt",
    summary="JSON Web Tokens as credentials.",
)
