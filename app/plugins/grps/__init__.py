"""The GRPS protocol over HTTP and gRPC."""

from app.core.hooks import Page, Plugin, Ref

plugin = Plugin(
    api=1,
    protocols=Ref("app.plugins.grps.routes:protocols"),
    page=Page(requests={"grps": "request_grps.js"}),
)
