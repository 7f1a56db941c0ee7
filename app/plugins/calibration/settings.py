"""The setting of a model, and the option of ``charioteer evaluate``."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter


class CalibrationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which scores a model answers.

    Attributes:
        scores: "raw" for those of the model, "calibrated" for the probabilities that calibration.json makes of them.
    """

    scores: Literal["raw", "calibrated"] = "raw"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """Calibration of scores."""

    calibrate: Annotated[bool, Parameter(negative="")] = False
    """Fit calibration.json of a local model on half of the images, and measure it on the others."""
