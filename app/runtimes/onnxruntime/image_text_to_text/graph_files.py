"""Find the three graphs of a vision-language model."""

from pathlib import Path

from app.settings.model import ModelError

_COMPONENTS = ("vision_encoder", "embed_tokens", "decoder_model_merged")
"""Pixels to image features, token ids to embeddings, and embeddings and a cache to logits and a longer cache."""

_SUFFIXES = ("", "_fp16", "_quantized", "_int8", "_uint8", "_q4", "_q4f16", "_bnb4")
"""Suffixes of transformers.js for the precision of a graph, most precise first."""


def find_component_graphs(folder: Path, named_graph: Path | None = None) -> tuple[Path, Path, Path]:
    """Find the vision encoder, the embedding and the decoder in `folder` or its ``onnx`` sub-folder.

    If a graph exists in several precisions, take the one with the suffix of `named_graph`, or else the most precise.

    Args:
        folder: the model's folder.
        named_graph: one of the graphs, if the settings name one.

    Raises:
        ModelError: if a graph is missing.
    """
    stem = "" if named_graph is None else named_graph.stem
    suffix = next((stem.removeprefix(name) for name in _COMPONENTS if stem.startswith(name)), "")
    vision_encoder, embed_tokens, decoder = (_find(folder, component, suffix) for component in _COMPONENTS)
    return vision_encoder, embed_tokens, decoder


def is_component_graph(file: Path) -> bool:
    """Return whether a file has the name of one of the three graphs, in any precision."""
    return file.stem.startswith(_COMPONENTS) and file.suffix == ".onnx"


def _find(folder: Path, component: str, suffix: str) -> Path:
    for parent in (folder, folder / "onnx"):
        for candidate in dict.fromkeys((suffix, *_SUFFIXES)):
            path = parent / f"{component}{candidate}.onnx"
            if path.is_file():
                return path
    raise ModelError(f"{folder} has no {component}.onnx, neither in itself nor in its onnx folder")
