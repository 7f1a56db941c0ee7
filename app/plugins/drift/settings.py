"""Options of `serve` for drift monitoring."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveFloat
from cyclopts.validators import Number

from app.core.settings.environment import environment

_DRIFT = Group("Drift", sort_key=7)


@Parameter(name="*", group=_DRIFT)
@dataclass(frozen=True, kw_only=True)
class DriftSettings:
    """Drift monitoring."""

    drift: Annotated[bool, environment("CHARIOTEER_DRIFT", show=True)] = False
    """Whether to monitor models for drift that have a drift-baseline.npz in their folder."""

    drift_window: Annotated[int, environment("CHARIOTEER_DRIFT_WINDOW"), Parameter(validator=Number(gte=30))] = 300
    """Images in one window; drift is tested at its end."""

    drift_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_DRIFT_SECONDS")] = None
    """Seconds after which a window with fewer images, at least 30, is tested too; by default never."""

    drift_per_second: Annotated[PositiveFloat, environment("CHARIOTEER_DRIFT_PER_SECOND")] = 20.0
    """Maximum number of images per second that are measured for drift; others are skipped."""

    drift_similarity: Annotated[bool, environment("CHARIOTEER_DRIFT_SIMILARITY")] = False
    """Whether answers contain the similarity of each image to the baseline; every image is then measured before its
    answer."""

    drift_webhook: Annotated[str | None, environment("CHARIOTEER_DRIFT_WEBHOOK")] = None
    """URL that receives a POST with JSON when a model starts or stops drifting."""
