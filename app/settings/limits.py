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

    max_image_side: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SIDE")] = 32_768
    """An image that is wider or higher is refused from its header."""

    max_image_scans: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SCANS")] = 64
    """A JPEG that goes over its pixels more often is refused; a progressive one does so about ten times."""

    max_elements: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ELEMENTS")] = 32 * 1024 * 1024
    """A request whose tensors have more elements together is refused."""

    max_values: Annotated[PositiveInt, environment("CHARIOTEER_MAX_VALUES")] = 4_000_000
    """A body of more JSON values, numbers above all, is refused; binary tensors have none."""

    max_entries: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ENTRIES")] = 100_000
    """A body of more members of JSON objects, BYTES elements, or fields of a gRPC message is refused."""

    max_json_depth: Annotated[PositiveInt, environment("CHARIOTEER_MAX_JSON_DEPTH")] = 100
    """JSON whose arrays and objects are nested deeper is refused."""

    max_name_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NAME_LENGTH")] = 1024
    """Bytes of a name in a request: of a JSON member, an input, a parameter, the request itself."""

    max_prompts: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PROMPTS")] = 256
    """A request of more prompts, counted over all of its images, or of more texts to continue is refused."""

    max_text_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_TEXT_LENGTH")] = 200_000
    """A prompt or text of more characters is refused."""

    max_new_tokens: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NEW_TOKENS")] = 1024
    """A request to generate more tokens for one prompt is refused."""

    max_each_client: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_EACH_CLIENT")] = None
    """So many requests and streams of one client may be in hand, by its key or else by its address; the next is refused
    with 429. Any number when absent."""

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
