"""Decode requests for embeddings, and encode the vectors of a TENSOR model. One object for each request."""

from typing import Any

import msgspec
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import HttpResponse
from app.core.wire.bytes_elements import StringElement
from app.core.wire.error_paths import map_path, move
from app.core.wire.json_body import read_json
from app.plugins.openai.codec import UNSUPPORTED_PARAMETER, UnsupportedError, check_data_uri, find_model
from app.plugins.openai.model_list import embedding_output, vector_length
from app.plugins.openai.wire import WireEmbedding, WireEmbeddings, WireEmbeddingsRequest, WireEmbeddingsUsage
from tasks.inference.error import InferenceError, invalid, model_failed
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, Tensor

_IMAGE_NAMES = ("image", "image_bytes")
_TOKENS = "prompt_tokens"
_BASE64 = {"content_type": "base64"}


class EmbeddingsCall(msgspec.Struct, kw_only=True, eq=False):
    """One request for embeddings and its answer. The model's name is in the body, whose size is checked already."""

    engine: Engine
    body: bytes
    request_id: str
    model_name: str = ""
    output_name: str = ""
    is_list: bool = False
    count: int = 0
    width: int | None = None
    as_base64: bool = False

    def decode(self) -> InferenceRequest:
        wire = read_json(self.body, WireEmbeddingsRequest, limits=self.engine.limits)
        registration, output = find_model(
            self.engine, wire.model or "", "returns one vector for each text or image", embedding_output
        )
        (spec,) = registration.ready_servable().inputs
        self.output_name, self.width, self.as_base64 = output.name, wire.dimensions, wire.encoding_format == "base64"
        if (length := vector_length(output.shape)) > 0:
            self._check_width(length)
        texts = self._texts(wire)
        shape = _shape(spec.shape, len(texts), single=output.shape[0] == 1 or len(output.shape) == 1)
        is_image = spec.name in _IMAGE_NAMES
        if is_image:
            for index, text in enumerate(texts):
                check_data_uri(text, self._path(index))
        tensor = BytesTensor(
            name=spec.name,
            shape=shape,
            elements=[StringElement(text) for text in texts],
            parameters=_BASE64 if is_image else {},
        )
        return InferenceRequest(id=self.request_id, model_name=registration.source.name, inputs=(tensor,))

    def encode(self, response: InferenceResponse, /) -> HttpResponse:
        """Encode the vectors, in a worker.

        Raise MODEL_FAILED for another number of vectors, or NaN or infinity in them. Raise INVALID_REQUEST for other
        `dimensions`.
        """
        tensors = {tensor.name: tensor for tensor in response.stack()}
        vectors = self._vectors(tensors[self.output_name])
        self._check_width(vectors.shape[1])
        data = [WireEmbedding(index=index, embedding=self._encoded(vector)) for index, vector in enumerate(vectors)]
        usage = _usage(tensors.get(_TOKENS))
        return HttpResponse(
            content=msgspec.json.encode(WireEmbeddings(data=data, model=response.model_name, usage=usage))
        )

    def map_error_path(self, error: InferenceError, /) -> InferenceError:
        if isinstance(error, UnsupportedError):
            return error
        places = dict.fromkeys(("", "data"), "input") | {"data[0]": self._path(0)}
        return map_path(error, lambda _, subpath: move(subpath, places), {"inputs": "input"})

    def _texts(self, wire: WireEmbeddingsRequest) -> list[str]:
        self.is_list = isinstance(wire.input, list)
        texts: list[Any] = wire.input if isinstance(wire.input, list) else [wire.input]
        if not texts:
            raise invalid("Expected a text, or a list of texts, got an empty list", "input")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise invalid("Expected a text; this server takes no tokens", self._path(index))
        self.count = len(texts)
        return texts

    def _path(self, index: int) -> str:
        return f"input[{index}]" if self.is_list else "input"

    def _check_width(self, width: int) -> None:
        if self.width not in (None, width):
            message = f"Expected {width}, the length of the model's vectors, got {self.width}"
            raise UnsupportedError(message, "dimensions", UNSUPPORTED_PARAMETER)

    def _vectors(self, tensor: Tensor) -> NDArray[np.float32]:
        """Return (N, n), one vector for each input."""
        numbers = tensor.values
        if numbers.ndim > 1 and len(numbers) != self.count:
            raise model_failed(f"The model returned {len(numbers)} vectors for {self.count} inputs")
        with np.errstate(over="ignore"):
            vectors = numbers.reshape(self.count, -1).astype("<f4")
        if not np.isfinite(vectors).all():
            index = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise model_failed(f"The model returned a vector with NaN or infinity for {self._path(index)}")
        return vectors

    def _encoded(self, vector: NDArray[np.float32]) -> str | list[float]:
        return pybase64.b64encode_as_string(vector.tobytes()) if self.as_base64 else vector.tolist()


def _usage(counts: Tensor | None) -> WireEmbeddingsUsage | None:
    if counts is None or counts.datatype.kind not in "iu":
        return None
    total = int(counts.data.sum())
    return WireEmbeddingsUsage(prompt_tokens=total, total_tokens=total)


def _shape(declared: tuple[int, ...], count: int, *, single: bool) -> tuple[int, ...]:
    """Return the shape of a tensor of `count` elements. Raise INVALID_REQUEST if the model takes one element only."""
    if count > 1 and (single or -1 not in declared):
        raise invalid(f"Expected one text: this model takes one in a request, got {count}", "input")
    batch = declared.index(-1) if -1 in declared else None
    return tuple(count if index == batch else 1 for index in range(len(declared)))
