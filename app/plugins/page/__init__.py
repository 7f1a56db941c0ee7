"""A web page to try models and watch the server."""

from app.core.hooks import Page, Plugin, Ref, View
from app.plugins.page.settings import PageSettings

plugin = Plugin(
    api=1,
    requires=("openapi", "drawing"),
    settings=(PageSettings,),
    start=Ref("app.plugins.page.page:start"),
    page=Page(
        views=(
            View(id="try", title="Try", order=10),
            View(id="request", title="Use in code", order=20),
            View(id="models", title="Models", order=80),
            View(id="metrics", title="Metrics", order=90),
        ),
        requests={
            "chariot": "request_chariot.js",
            "v2": "request_v2.js",
            "grpc": "request_grpc.js",
        },
    ),
)
