"""A description of the server in OpenAPI 3.1, at `/schema`."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    extends={
        "server.handlers": Ref("app.plugins.openapi.routes:HANDLERS"),
        "server.operations": Ref("app.plugins.openapi.routes:OPERATIONS"),
    },
)
