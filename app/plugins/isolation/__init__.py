"""Models in processes of their own."""

from app.core.hooks import ModelSection, Plugin, Ref
from app.plugins.isolation.settings import IsolationOptions

plugin = Plugin(
    api=1,
    model_options=(IsolationOptions,),
    model_settings=(ModelSection(type=Ref("app.plugins.isolation.settings:IsolationSettings")),),
    loaders=Ref("app.plugins.isolation.loader:LOADERS"),
)
