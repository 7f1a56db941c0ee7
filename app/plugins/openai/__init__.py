"""OpenAI's chat completions and embeddings."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="openai",
    summary="OpenAI's chat completions and embeddings.",
)
