"""OpenAI's chat completions and embeddings."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="openai",
    summary="OpenAI's chat completions and embeddings.",
    protocols=Ref("app.plugins.openai.routes:protocols"),
    extends={"conformance.protocols": Ref("app.plugins.openai.conformance:PROTOCOLS")},
)
