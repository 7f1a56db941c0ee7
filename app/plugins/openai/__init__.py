"""OpenAI's chat completions and embeddings."""

from app.core.hooks import Page, Plugin, Ref

plugin = Plugin(
    api=2,
    protocols=Ref("app.plugins.openai.routes:protocols"),
    start=Ref("app.plugins.openai.model_list:start"),
    page=Page(requests={"openai": "request_openai.js"}),
)
