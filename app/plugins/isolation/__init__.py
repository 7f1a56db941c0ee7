"""Models in processes of their own."""

from app.core.hooks import Plugin, Ref
from app.plugins.isolation.settings import IsolationOptions

plugin = Plugin(
    api=2,
    model_options=(IsolationOptions,),
    model_settings={"": Ref("app.plugins.isolation.settings:IsolationSettings")},
    loaders=Ref("app.plugins.isolation.loader:LOADERS"),
)
