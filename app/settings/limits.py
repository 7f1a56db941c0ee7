"""Limits on requests, the queue and time."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt

from app.settings.environment import LIMITS, environment

__all__ = ("LimitSettings",)


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """Limits on requests."""

    max_request_bytes: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_BYTES", show=True)] = 64 * 1024 * 1024
    """Maximum size of a body; a larger one gets 413."""

    max_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PIXELS")] = 64_000_000
    """Maximum number of pixels of an image, read from its header before it is decoded."""

    max_request_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_REQUEST_PIXELS")] = 256_000_000
    """Maximum number of pixels of all images in a request."""

    max_inputs: Annotated[PositiveInt, environment("CHARIOTEER_MAX_INPUTS")] = 256
    """Maximum number of images or texts in a request."""

    max_image_side: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SIDE")] = 32_768
    """Maximum width and height of an image in pixels, read from its header."""

    max_image_scans: Annotated[PositiveInt, environment("CHARIOTEER_MAX_IMAGE_SCANS")] = 64
    """Maximum number of scans in a JPEG; a progressive one usually has about ten."""

    allow_avif_jpeg2000: Annotated[bool, environment("CHARIOTEER_ALLOW_AVIF_JPEG2000")] = False
    """Decode AVIF and JPEG 2000 images too; their decoders limit their own memory, the server does not."""

    max_elements: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ELEMENTS")] = 32 * 1024 * 1024
    """Maximum number of elements of all tensors in a request."""

    max_values: Annotated[PositiveInt, environment("CHARIOTEER_MAX_VALUES")] = 4_000_000
    """Maximum number of JSON values, mostly numbers, in a body; binary tensors have none."""

    max_entries: Annotated[PositiveInt, environment("CHARIOTEER_MAX_ENTRIES")] = 100_000
    """Maximum number of members of JSON objects, BYTES elements, or fields of a gRPC message in a body."""

    max_json_depth: Annotated[PositiveInt, environment("CHARIOTEER_MAX_JSON_DEPTH")] = 100
    """Maximum depth of nested JSON arrays and objects."""

    max_name_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NAME_LENGTH")] = 1024
    """Maximum length in bytes of a name in a request: of a JSON member, an input, a parameter, or the request."""

    max_prompts: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PROMPTS")] = 256
    """Maximum number of prompts of all images, or of texts to continue, in a request."""

    max_text_length: Annotated[PositiveInt, environment("CHARIOTEER_MAX_TEXT_LENGTH")] = 200_000
    """Maximum number of characters of a prompt or text."""

    max_new_tokens: Annotated[PositiveInt, environment("CHARIOTEER_MAX_NEW_TOKENS")] = 1024
    """Maximum number of tokens that a request may generate for one prompt."""

    max_each_client: Annotated[PositiveInt | None, environment("CHARIOTEER_MAX_EACH_CLIENT")] = None
    """Maximum number of requests and streams in flight of one client, by its key or else its address; further ones get
    429. No limit by default."""

    max_waiting: Annotated[PositiveInt, environment("CHARIOTEER_MAX_WAITING", show=True)] = 128
    """Maximum number of requests that wait for a worker; further ones get 429."""

    max_waiting_each: Annotated[NonNegativeInt | None, environment("CHARIOTEER_MAX_WAITING_EACH")] = None
    """Maximum number of requests that wait for one model; half of max_waiting by default with several models."""

    max_queue_seconds: Annotated[PositiveFloat | None, environment("CHARIOTEER_MAX_QUEUE_SECONDS")] = None
    """Maximum estimated wait for a worker; requests that would wait longer get 429. No limit by default."""

    request_timeout: Annotated[PositiveFloat, environment("CHARIOTEER_REQUEST_TIMEOUT", show=True)] = 300.0
    """Seconds after which a request gets 504; a client may set a shorter timeout, never a longer one."""

    max_explanation_samples: Annotated[PositiveInt, environment("CHARIOTEER_MAX_EXPLANATION_SAMPLES")] = 2000
    """Maximum number of masked copies of images that the model processes to explain one request."""

    max_explanation_seconds: Annotated[PositiveFloat, environment("CHARIOTEER_MAX_EXPLANATION_SECONDS")] = 30.0
    """Seconds after which an explanation ends with the samples that it has."""
