"""Run the three graphs: the vision encoder, the embedding of tokens, and the decoder with an attention cache."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError
from app.plugins.transformers.text.generation import Sampler
from tasks.inference.error import model_failed
from tasks.inference.tensor import TensorSpec

_PIXELS = "pixel_values"
_PAST = "past_key_values."
_PRESENT = "present."
_KNOWN = frozenset({"inputs_embeds", "attention_mask", "position_ids", "use_cache_branch", "num_logits_to_keep"})


class TextConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The language model's part of config.json."""

    max_position_embeddings: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None


class VisionEncoder:
    """Runs the vision encoder, which takes ``pixel_values`` and other outputs of the processor.

    Raise ModelError if the graph has other inputs, or takes images of another size.

    Args:
        graph: the encoder.
        example: what the processor makes of an image that is not square.
    """

    def __init__(self, graph: Session, example: Mapping[str, NDArray[Any]]) -> None:
        self._graph = graph
        self._inputs = {spec.name: spec for spec in graph.inputs}
        if _PIXELS not in self._inputs:
            raise ModelError(f"{graph.file} takes no {_PIXELS}")
        for name in self._inputs.keys() - example.keys():
            raise ModelError(f"{graph.file} takes {name!r}, which the model's processor does not make")
        expected, made = self._inputs[_PIXELS].shape, example[_PIXELS].shape
        fits = [size in (-1, own) for size, own in zip(expected, made, strict=False)]
        # Each image is encoded alone, and the number of its tiles differs.
        if len(expected) != len(made) or not all(fits[-3:]):
            raise ModelError(f"{graph.file} takes images of {list(expected)}, but preprocessing makes {list(made)}")
        names = [spec.name for spec in graph.outputs]
        self._output = names.index("image_features") if "image_features" in names else 0

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the features (number, width) of all images, in their order, from the outputs of the processor.

        Raise MODEL_FAILED.
        """
        feeds = {name: inputs[name].astype(spec.datatype.dtype, copy=False) for name, spec in self._inputs.items()}
        encoded: list[NDArray[Any]] = []
        for index in range(len(feeds[_PIXELS])):
            features = self._graph.run({name: value[index : index + 1] for name, value in feeds.items()})[self._output]
            if features.ndim < 2 or features.size == 0:
                shape = list(features.shape)
                raise model_failed(f"The model failed: expected image features of shape [number, width], got {shape}")
            encoded.append(features.reshape(-1, features.shape[-1]))
        return np.concatenate(encoded)


class Decoder:
    """A language model that continues a text with images.

    The decoder receives only the inputs that it declares: ``inputs_embeds``; ``attention_mask`` over the cache and the
    new tokens; ``position_ids`` counted from 0; ``use_cache_branch`` of older merged exports; ``num_logits_to_keep``;
    and ``past_key_values.<layer>.<key|value>``, empty at first, then the ``present.<layer>.<key|value>`` of the
    previous step.

    Its `layers` is the number of layers with a cache. Raise ModelError if a graph has unsupported inputs or outputs.

    Args:
        embed_tokens: ids (1, length) to embeddings (1, length, width).
        decoder: embeddings to logits (1, length, vocabulary).
        config: heads and sizes of the cache, if the graph does not fix them.
    """

    def __init__(self, embed_tokens: Session, decoder: Session, config: TextConfiguration) -> None:
        self._embed_tokens = embed_tokens
        self._decoder = decoder
        if len(embed_tokens.inputs) != 1:
            names = ", ".join(spec.name for spec in embed_tokens.inputs)
            raise ModelError(f"{embed_tokens.file} takes {names}; expected token ids only")
        self._inputs = {spec.name: spec for spec in decoder.inputs}
        if "inputs_embeds" not in self._inputs:
            raise ModelError(f"{decoder.file} takes no inputs_embeds")
        if "position_ids" in self._inputs and len(self._inputs["position_ids"].shape) != 2:
            shape = list(self._inputs["position_ids"].shape)
            raise ModelError(f"{decoder.file} takes position_ids of shape {shape}, which is not supported yet")
        outputs = [spec.name for spec in decoder.outputs]
        if "logits" not in outputs:
            raise ModelError(f"{decoder.file} gives no logits")
        self._logits = outputs.index("logits")
        self._empty: dict[str, NDArray[Any]] = {}
        self._cache_outputs: dict[str, int] = {}
        for spec in decoder.inputs:
            if spec.name in _KNOWN:
                continue
            present = _PRESENT + spec.name.removeprefix(_PAST)
            if not spec.name.startswith(_PAST):
                raise ModelError(f"{decoder.file} takes {spec.name!r}, which is not supported yet")
            if present not in outputs:
                raise ModelError(f"{decoder.file} takes {spec.name!r} but gives no {present!r}")
            self._empty[spec.name] = _empty_cache(decoder, spec, config)
            self._cache_outputs[spec.name] = outputs.index(present)
        if not self._empty:
            raise ModelError(f"{decoder.file} has no attention cache ({_PAST}<layer>.<key|value>), expected one")
        self.layers = len(self._empty) // 2

    def embed(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[Any]:
        """Return the embeddings of `ids`, (1, length, width)."""
        (spec,) = self._embed_tokens.inputs
        return self._embed_tokens.run({spec.name: np.asarray(ids, spec.datatype.dtype)[np.newaxis]})[0]

    def generate(self, embeddings: NDArray[Any], sampler: Sampler, max_tokens: int) -> Generator[int]:
        """Continue the text with the (1, length, width) `embeddings`, and yield token ids.

        Raise MODEL_FAILED.
        """
        cache: Mapping[str, NDArray[Any]] = self._empty
        length = 0
        for count in range(1, max_tokens + 1):
            length += embeddings.shape[1]
            outputs = self._decoder.run(self._feeds(embeddings, cache, length))
            token = sampler.pick(self._last_logits(outputs[self._logits]))
            yield token
            if count < max_tokens:
                cache = {name: outputs[index] for name, index in self._cache_outputs.items()}
                embeddings = self.embed([token])

    def _feeds(
        self, embeddings: NDArray[Any], cache: Mapping[str, NDArray[Any]], total_length: int
    ) -> dict[str, NDArray[Any]]:
        start = total_length - embeddings.shape[1]
        values: dict[str, Any] = {
            "inputs_embeds": embeddings,
            "attention_mask": np.ones((1, total_length), np.int64),
            "position_ids": np.arange(start, total_length)[np.newaxis],
            "use_cache_branch": start > 0,
            "num_logits_to_keep": 1,
        }
        feeds: dict[str, NDArray[Any]] = dict(cache)
        for name in self._inputs.keys() & values.keys():
            spec = self._inputs[name]
            feeds[name] = np.asarray(values[name], spec.datatype.dtype)
            if feeds[name].ndim == 0:
                feeds[name] = feeds[name].reshape((1,) * len(spec.shape))
        return feeds

    def _last_logits(self, logits: NDArray[Any]) -> NDArray[np.float32]:
        if logits.ndim != 3 or logits.shape[0] != 1 or 0 in logits.shape:
            shape = list(logits.shape)
            raise model_failed(f"The model failed: expected logits of shape [1, length, vocabulary], got {shape}")
        return logits[0, -1].astype(np.float32)


def _empty_cache(graph: Session, spec: TensorSpec, config: TextConfiguration) -> NDArray[Any]:
    if len(spec.shape) != 4 or spec.shape[0] not in (-1, 1):
        expected = "[1, heads, length, width]"
        raise ModelError(f"{graph.file}: expected {spec.name!r} of shape {expected}, got {list(spec.shape)}")
    heads, width = config.num_key_value_heads or config.num_attention_heads, config.head_dim
    if width is None and config.hidden_size and config.num_attention_heads:
        width = config.hidden_size // config.num_attention_heads
    heads = spec.shape[1] if spec.shape[1] > 0 else heads
    width = spec.shape[3] if spec.shape[3] > 0 else width
    if heads is None or width is None:
        raise ModelError(
            f"Neither {graph.file} nor config.json says how many heads {spec.name!r} has, and how wide they are"
        )
    return np.zeros((1, heads, 0, width), spec.datatype.dtype)
