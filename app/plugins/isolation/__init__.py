"""Models in processes of their own."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    name="isolation",
    summary="Models in processes of their own.",
    loaders=Ref("app.plugins.isolation.loader:LOADERS"),
    start=Ref("app.plugins.isolation.restarts:start"),
)
