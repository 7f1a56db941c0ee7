"""A web page to try models, and to load and unload them."""

from app.core.hooks import Page, Plugin, Ref, View
from app.plugins.page.settings import PageSettings

plugin = Plugin(
    api=1,
    requires=("drawing",),
    settings=(PageSettings,),
    start=Ref("app.plugins.page.page:start"),
    page=Page(
        views=(
            View(id="try", title="Try", order=10),
            View(id="request", title="Use in code", order=20),
            View(id="models", title="Models", order=80),
        ),
        requests={
            "chariot": "request_chariot.js",
            "v2": "request_v2.js",
            "grpc": "request_grpc.js",
        },
    ),
)
