"""The setting of a model."""

from typing import Literal

import msgspec


class CalibrationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which scores a model answers.

    Attributes:
        scores: "raw" for those of the model, "calibrated" for the probabilities that calibration.json makes of them.
    """

    scores: Literal["raw", "calibrated"] = "raw"
