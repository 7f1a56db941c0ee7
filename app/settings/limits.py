"""How much of a request is worked on, how many may wait, and how long."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt

from app.settings.environment import environment

__all__ = ("LimitSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """What a request may cost."""

    max_request_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_BYTES")] = 64 * 1024 * 1024
    """A larger body is refused with 413."""

    max_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PIXELS")] = 64_000_000
    """An image of more pixels is refused from its header, before it is decoded."""

    max_request_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_PIXELS")] = 256_000_000
    """A request whose images have more pixels together is refused."""

    max_inputs: Annotated[PositiveInt, environment("CHARIOTEER_MAX_INPUTS")] = 256
    """A request of more images or texts is refused."""

    max_waiting: Annotated[PositiveInt, environment("CHARIOTEER_MAX_WAITING")] = 128
    """Requests that may wait for a worker; the next one is refused with 429."""

    max_waiting_each: Annotated[NonNegativeInt | None, environment("CHARIOTEER_MAX_WAITING_EACH")] = None
    """So many of them may be for one model; half of them when absent and there is more than one model."""

    max_queue_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_MAX_QUEUE_SECONDS")] = None
    """A request that is likely to wait longer for a worker is refused with 429; however long when absent."""

    request_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_REQUEST_TIMEOUT")] = 300.0
    """Seconds after which a request is given up with 504; its sender may give it less, never more."""

    max_explanation_samples: Annotated[PositiveInt, environment("CHARIOTEER_MAX_EXPLANATION_SAMPLES")] = 2000
    """Masked copies of images that a model is shown to explain one request; a request for more is refused."""

    max_explanation_seconds: Annotated[PositiveFloat, environment("CHARIOTEER_MAX_EXPLANATION_SECONDS")] = 30.0
    """Seconds after which an explanation makes do with the samples that it has."""
