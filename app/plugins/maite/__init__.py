"""Classifiers and detectors as models of MAITE."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="maite",
    summary="Classifiers and detectors as models of MAITE.",
    requires=("in_process",),
    public={"as_maite": "app.plugins.maite.models"},
)
