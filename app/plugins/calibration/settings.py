"""The setting of a model."""

from typing import Literal

import msgspec


class CalibrationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which scores a model answers.

    Attributes:
        scores: "raw" as the model gives them, "calibrated" for the probabilities that calibration.json makes of them.
    """

    scores: Literal["raw", "calibrated"] = "raw"
