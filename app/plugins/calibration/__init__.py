"""Scores that are probabilities: fitted on labelled data, and served."""

from app.core.hooks import ModelSection, Plugin, Ref
from app.plugins.calibration.settings import CalibrationOptions

plugin = Plugin(
    api=1,
    model_settings=(ModelSection(type=Ref("app.plugins.calibration.settings:CalibrationSettings")),),
    command_options={"evaluate": CalibrationOptions},
    loaders=Ref("app.plugins.calibration.calibration:LOADERS"),
    extends={"evaluation.reports": Ref("app.plugins.calibration.evaluation.report:PARTS")},
)
