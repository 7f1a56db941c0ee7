"""Find the three graphs of a vision-language model."""

from collections.abc import Sequence
from pathlib import Path

from app.core.settings.model import ModelSource

_SUFFIX = ".onnx"

_COMPONENTS = ("vision_encoder", "embed_tokens", "decoder_model_merged")
"""Pixels to image features, token ids to embeddings, and embeddings and a cache to logits and a longer cache."""

_PRECISIONS = ("", "_fp16", "_quantized", "_int8", "_uint8", "_q4", "_q4f16", "_bnb4")
"""Suffixes of transformers.js for the precision of a graph, most precise first."""


def find_component_graphs(source: ModelSource) -> Sequence[Path]:
    """Return the vision encoder, the embedding and the decoder of a vision-language model; none if one is missing.

    They are in the model's folder or its subfolder ``onnx``. If a graph exists in several precisions, take the
    one in the file that the settings name, or else the most precise. A named file must be one of the three graphs.
    """
    stem = "" if source.file is None else source.file.stem
    if source.file is not None and not (stem.startswith(_COMPONENTS) and source.file.suffix == _SUFFIX):
        return []
    precision = next((stem.removeprefix(name) for name in _COMPONENTS if stem.startswith(name)), "")
    suffixes = dict.fromkeys((precision, *_PRECISIONS))
    graphs: list[Path] = []
    for name in _COMPONENTS:
        parents = (source.folder, source.folder / "onnx")
        paths = (parent / f"{name}{suffix}{_SUFFIX}" for parent in parents for suffix in suffixes)
        graphs += [path for path in paths if path.is_file()][:1]
    return graphs if len(graphs) == len(_COMPONENTS) else []
