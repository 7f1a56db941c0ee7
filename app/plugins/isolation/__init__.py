"""Models in processes of their own."""

from app.core.hooks import Plugin, Ref
from app.plugins.isolation.settings import IsolationOptions

plugin = Plugin(
    api=1,
    name="isolation",
    summary="Models in processes of their own.",
    model_options=(IsolationOptions,),
    loaders=Ref("app.plugins.isolation.loader:LOADERS"),
    start=Ref("app.plugins.isolation.restarts:start"),
)
