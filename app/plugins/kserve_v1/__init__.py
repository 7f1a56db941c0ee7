"""KServe's V1 protocol, with CloudEvents."""

from app.core.hooks import Page, Plugin, Ref

plugin = Plugin(
    api=1,
    protocols=Ref("app.plugins.kserve_v1.routes:protocols"),
    page=Page(requests={"v1": "request_v1.js"}),
)
