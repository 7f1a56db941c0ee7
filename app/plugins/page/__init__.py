"""A web page to try models and to load them, the description of the server in OpenAPI, and its options."""

from app.core.hooks import Command, Page, Plugin, Ref, View
from app.plugins.page.settings import PageSettings

plugin = Plugin(
    api=2,
    requires=("authoring",),
    settings=(PageSettings,),
    commands=(
        Command(
            name="config",
            run=Ref("app.plugins.page.configuration:config"),
            help="Show the options of `serve` and where their values come from.",
        ),
        Command(
            name="env-schema",
            run=Ref("app.plugins.page.configuration:env_schema"),
            help="Print a JSON Schema of environment variables.",
        ),
    ),
    start=Ref("app.plugins.page.page:start"),
    page=Page(
        views=(
            View(id="try", title="Try", order=10),
            View(id="request", title="Use in code", order=20),
            View(id="models", title="Models", order=80),
        ),
        requests={
            "chariot": "request_chariot.js",
            "v1": "request_v1.js",
            "v2": "request_v2.js",
            "grpc": "request_grpc.js",
        },
    ),
)
