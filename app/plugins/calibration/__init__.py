"""Scores that are probabilities, by the file that `evaluate --calibrate` writes."""

from app.core.hooks import ModelSection, Plugin, Ref

plugin = Plugin(
    api=1,
    model_settings=(ModelSection(type=Ref("app.plugins.calibration.settings:CalibrationSettings")),),
    loaders=Ref("app.plugins.calibration.calibration:LOADERS"),
)
