"""Decode one request of `:predict`, `:classify` or `:regress`, and encode its response."""

from collections.abc import Mapping, Sequence

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.kserve_v1.instances import PROMPTS
from app.core.wire.error_paths import map_path, move
from app.plugins.tensorflow_serving.examples import example_results, example_tensors, read_examples
from app.plugins.tensorflow_serving.predict_tensors import TensorFormat, encode, read_tensors
from app.plugins.tensorflow_serving.signatures import (
    PROMPTS_INPUT,
    SIGNATURE_NAME,
    Method,
    Signature,
    find_signature,
)
from app.plugins.tensorflow_serving.targets import ModelTarget, find_ready_version
from app.plugins.tensorflow_serving.values import json_document, read_object
from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, InputTensor, Tensor
from tasks.vision.request import IMAGE_INPUT

_GREY_BATCH_RANK = 3


class TensorFlowCodec(msgspec.Struct, kw_only=True, eq=False):
    """The state of one request, for REST and gRPC.

    Attributes:
        engine: has the models and the limits.
        target: the requested model.
        inputs: the decoded inputs; empty before.
    """

    engine: Engine
    target: ModelTarget
    inputs: Sequence[InputTensor] = ()

    @property
    def model_name(self) -> str:
        return self.target.model

    def find_model(self) -> Registration:
        """Return the requested version of the model; see `find_ready_version`."""
        return find_ready_version(self.engine.registry, self.target)

    def request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        """Return the neutral request."""
        self.inputs = inputs
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )

    def map_error_path(self, error: InferenceError) -> InferenceError:
        """Return an error about ``inputs[0]`` as one about the input's name, which clients of this protocol know."""
        return map_path(
            error, lambda index, subpath: move(subpath, dict.fromkeys(("", "data"), self.inputs[index].name))
        )


def model_inputs(
    tensors: Mapping[str, InputTensor], tensor_format: TensorFormat, signature: Signature
) -> tuple[InputTensor, ...]:
    """Return the task's inputs: all images as one input, or one input for each image with its own prompts.

    Raise INVALID_REQUEST for several images or texts in a row, or for prompts without one row for each image.
    """
    if signature.takes_tensors:
        return tuple(tensors.values())
    for name, tensor in tensors.items():
        rows = tensor.shape[0] if tensor.shape else 1
        if name != PROMPTS and isinstance(tensor, BytesTensor) and len(tensor.elements) != rows:
            message = f"Expected one image or text in each of {rows} rows, got {len(tensor.elements)}"
            raise invalid(message, tensor.name)
    images = tensors.get(IMAGE_INPUT.name)
    if images is None:
        return tuple(tensors.values())
    if isinstance(images, Tensor) and tensor_format is TensorFormat.ROW and len(images.shape) == _GREY_BATCH_RANK:
        images = msgspec.structs.replace(images, data=images.data[..., None])
    prompts = tensors.get(PROMPTS)
    if prompts is None:
        return (images,)
    prompt_rows = _text_rows(prompts)
    single_images = _split_images(images)
    if len(prompt_rows) != len(single_images):
        message = f"Expected prompts for each of the {len(single_images)} images, got {len(prompt_rows)} rows of them"
        raise invalid(message, PROMPTS)
    return tuple(
        msgspec.structs.replace(image, parameters={PROMPTS: row})
        for image, row in zip(single_images, prompt_rows, strict=True)
    )


def _split_images(images: InputTensor) -> Sequence[InputTensor]:
    if isinstance(images, BytesTensor):
        return [BytesTensor(name=images.name, shape=(1,), elements=[element]) for element in images.elements]
    pixels = images.data if len(images.shape) > _GREY_BATCH_RANK else images.data[None]
    return [Tensor(name=images.name, datatype=images.datatype, data=image) for image in pixels]


def _text_rows(prompts: InputTensor) -> list[list[str]]:
    if not isinstance(prompts, BytesTensor) or len(prompts.shape) > len(PROMPTS_INPUT.shape):
        raise invalid("Expected texts, or a list of texts for each image", PROMPTS)
    texts: list[str] = []
    for index, element in enumerate(prompts.elements):
        try:
            texts.append(element.text())
        except InferenceError as error:
            raise error.with_prefix(f"{PROMPTS}[{index}]") from None
    count = prompts.shape[0] if prompts.shape else 1
    size = len(texts) // count if count else 0
    return [texts[start * size : (start + 1) * size] for start in range(count)]


class RestCodec(TensorFlowCodec, kw_only=True, eq=False):
    """Decodes a request, and encodes its response in the same form.

    Checks run in the order of the real server: JSON, examples, model, signature, tensors.

    Attributes:
        body: the request's body.
        headers: further headers of the response.
        tensor_format: set by `decode`, as the following: the layout of the tensors.
        signature: the signature of the request.
        example_count: the number of examples; 0 for a prediction.
    """

    body: bytes
    headers: Sequence[tuple[str, str]]
    tensor_format: TensorFormat = TensorFormat.ROW
    signature: Signature | None = None
    example_count: int = 0

    def decode(self) -> InferenceRequest:
        document = read_object(self.body, self.engine.limits)
        name = document.get(SIGNATURE_NAME, "")
        if not isinstance(name, str):
            raise invalid(f"Expected a text, got {quote_value(name)}", SIGNATURE_NAME)
        method = Method(f"tensorflow/serving/{self.target.verb}")
        examples = () if method is Method.PREDICT else read_examples(document)
        registration = self.find_model()
        self.signature = signature = find_signature(registration.ready_servable(), name, method)
        if method is Method.PREDICT:
            tensors, self.tensor_format = read_tensors(document, signature)
        else:
            tensors, self.example_count = example_tensors(examples, signature), len(examples)
        return self.request(registration, model_inputs(tensors, self.tensor_format, signature))

    def encode(self, response: InferenceResponse) -> HttpResponse:
        """Encode the response. Raise INVALID_REQUEST for outputs that cannot be written in the requested form."""
        if self.example_count and self.signature is not None:
            content = json_document("results", example_results(response, self.example_count, self.signature))
        else:
            content = encode(response, self.tensor_format)
        return HttpResponse(content=content, headers=self.headers)
