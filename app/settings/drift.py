"""Whether, and how, models are watched for drift."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat
from cyclopts.validators import Number

from app.settings.environment import environment

__all__ = ("DriftSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """What is watched for drift."""

    drift: Annotated[bool, environment("CHARIOTEER_DRIFT")] = False
    """Whether models with a drift-baseline.npz in their folder are watched for drift."""

    drift_window: Annotated[int, environment("CHARIOTEER_DRIFT_WINDOW"), Parameter(validator=Number(gte=30))] = 300
    """Images after which drift is judged, and the next window begins."""

    drift_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_DRIFT_SECONDS")] = None
    """Seconds after which a window of fewer images, 30 at least, is judged too; never when absent."""

    drift_per_second: Annotated[PositiveFloat, environment("CHARIOTEER_DRIFT_PER_SECOND")] = 20.0
    """Images that are measured for drift each second, at most; the others are passed over."""

    drift_similarity: Annotated[bool, environment("CHARIOTEER_DRIFT_SIMILARITY")] = False
    """Whether answers say how much each image is like the baseline; every image is measured before it is answered."""

    drift_webhook: Annotated[str | None, environment("CHARIOTEER_DRIFT_WEBHOOK")] = None
    """Where to post it, as JSON, when a model begins to drift or no longer does."""
