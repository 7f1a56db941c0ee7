"""Classifiers and detectors as models of MAITE, and its models as Python classes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("in_process",),
    public={"as_maite": "app.plugins.maite.models"},
    extends={
        "python.models": Ref("app.plugins.maite.python_models:ADAPTERS"),
        "python.answers": Ref("app.plugins.maite.python_models:CONVERTERS"),
    },
)
