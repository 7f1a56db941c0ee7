"""Options of `serve` for explanations."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt

from app.core.settings.environment import LIMITS, environment


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, kw_only=True)
class ExplanationSettings:
    """Limits on explanations."""

    max_explanation_samples: Annotated[PositiveInt, environment("CHARIOTEER_MAX_EXPLANATION_SAMPLES")] = 2000
    """Maximum number of masked copies of images that the model processes to explain one request."""

    max_explanation_seconds: Annotated[PositiveFloat, environment("CHARIOTEER_MAX_EXPLANATION_SECONDS")] = 30.0
    """Seconds after which an explanation ends with the samples that it has."""

    explain_workers: Annotated[PositiveInt, environment("CHARIOTEER_EXPLAIN_WORKERS")] = 1
    """Additional threads for explanations, with a lower priority."""
