"""Scores that are probabilities, by the file that `evaluate --calibrate` writes."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=2,
    model_settings={"": Ref("app.plugins.calibration.settings:CalibrationSettings")},
    loaders=Ref("app.plugins.calibration.calibration:LOADERS"),
)
