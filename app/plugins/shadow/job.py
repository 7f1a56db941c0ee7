"""What a shadow version gets: a request of its champion, with the pixels that this has decoded."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from app.core.engine.models.registry import Registration
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction, SampleResult
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.vision.image import Image
from tasks.vision.request import ImageItem


class ShadowedSample(msgspec.Struct, frozen=True, eq=False):
    """One sample: its id in recordings, the champion's prediction, and the size of its image; 0 without one."""

    id: str
    prediction: Prediction
    width: int = 0
    height: int = 0


class ShadowJob(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request to answer again."""

    registration: Registration  # the version that answered, the champion
    request: InferenceRequest
    decoded: InferenceRequest  # the request as `with_pixels`
    samples: Sequence[ShadowedSample]  # what the champion answered
    model_ns: int  # nanoseconds that its model took
    # Called with the number of samples that the shadow version answers in another way.
    watchers: Sequence[Callable[[int], None]] = ()

    @property
    def size(self) -> int:
        """Return the bytes of the decoded images."""
        return sum(3 * sample.width * sample.height for sample in self.samples)


def with_pixels(request: InferenceRequest, samples: Sequence[SampleResult]) -> InferenceRequest:
    """Return the request with the pixels that the champion decoded, because decoding them again costs much.

    Inputs of several images, and images that were decoded at a fraction of their size, stay encoded.
    """
    inputs, counts = list(request.inputs), Counter(sample.input for sample in samples)
    for sample in samples:
        encoded, item = inputs[sample.input], sample.item
        if isinstance(item, ImageItem) and isinstance(encoded, BytesTensor) and counts[sample.input] == 1:
            image: Image = item.image
            if image.full_size is None:
                pixels, parameters = image.pixels[np.newaxis], encoded.parameters
                decoded = Tensor(name=encoded.name, datatype=Datatype.UINT8, data=pixels, parameters=parameters)
                inputs[sample.input] = decoded
    return msgspec.structs.replace(request, inputs=tuple(inputs))
