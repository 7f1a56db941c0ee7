"""Metrics of labels, scores, image sizes and batch sizes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    start=Ref("app.plugins.prediction_metrics.metrics:start"),
)
