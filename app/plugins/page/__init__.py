"""A web page to try models and watch the server."""

from app.core.hooks import Plugin, Ref
from app.plugins.page.settings import PageSettings

plugin = Plugin(
    api=1,
    name="page",
    summary="A web page to try models and watch the server.",
    settings=(PageSettings,),
    start=Ref("app.plugins.page.start:start"),
)
