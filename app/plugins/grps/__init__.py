"""The GRPS protocol over HTTP and gRPC."""

from app.core.hooks import Page, Plugin, Ref

plugin = Plugin(
    api=2,
    start=Ref("app.plugins.grps.monitor:start"),
    protocols=Ref("app.plugins.grps.routes:protocols"),
    page=Page(requests={"grps": "request_grps.js"}),
)
