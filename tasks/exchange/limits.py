"""How much of a request is worked on before it is refused."""

from collections.abc import Callable

import msgspec

__all__ = ("Limits",)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that hold for one request.

    Attributes:
        max_request_bytes: of a body, after decompression.
        max_pixels: width times height of one image, read from its header before anything is decoded.
        max_request_pixels: the same summed over all images of the request.
        max_inputs: images, or texts, in one request, counted over all of its inputs.
        max_prompts: prompts, counted over all images of the request.
        max_new_tokens: tokens generated for one prompt.
        max_explanation_samples: masked copies of images that a model is shown to explain one request.
        max_explanation_seconds: after so long an explanation makes do with the samples that it has.
        detail: how much smaller than an image of a (width, height) the model sees it, such as 3.2, where images may be
            decoded at a fraction of their size; None where they may not.
    """

    max_request_bytes: int = 64 * 1024 * 1024
    max_pixels: int = 64_000_000
    max_request_pixels: int = 256_000_000
    max_inputs: int = 256
    max_prompts: int = 256
    max_new_tokens: int = 1024
    max_explanation_samples: int = 2000
    max_explanation_seconds: float = 30.0
    detail: Callable[[int, int], float] | None = None
