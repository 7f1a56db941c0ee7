"""Find the three graphs of a vision-language model."""

from pathlib import Path

import msgspec

from app.settings.model import ModelError

__all__ = ("Graphs", "find_component_graphs", "is_component_graph")

_COMPONENTS = ("vision_encoder", "embed_tokens", "decoder_model_merged")

_SUFFIXES = ("", "_fp16", "_quantized", "_int8", "_uint8", "_q4", "_q4f16", "_bnb4")
"""Suffixes of transformers.js for the precision of a graph, most precise first."""


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """The three graphs of a vision-language model as Optimum and transformers.js name them.

    Attributes:
        vision_encoder: pixels to image features.
        embed_tokens: token ids to embeddings.
        decoder: embeddings and a cache to logits and a longer cache.
    """

    vision_encoder: Path
    embed_tokens: Path
    decoder: Path


def find_component_graphs(folder: Path, named_graph: Path | None = None) -> Graphs:
    """Find the three graphs in `folder` or its ``onnx`` sub-folder.

    If a graph exists in several precisions, take the one with the suffix of `named_graph`, or else the most precise.

    Args:
        folder: the model's folder.
        named_graph: one of the graphs, if the settings name one.

    Raises:
        ModelError: if a graph is missing.
    """
    suffix = _suffix_of(named_graph)
    paths: list[Path] = []
    for component in _COMPONENTS:
        path = _find(folder, component, suffix)
        if path is None:
            raise ModelError(f"{folder} has no {component}.onnx, neither in itself nor in its onnx folder")
        paths.append(path)
    return Graphs(vision_encoder=paths[0], embed_tokens=paths[1], decoder=paths[2])


def is_component_graph(file: Path) -> bool:
    """Return whether a file has the name of one of the three graphs, in any precision."""
    return file.stem.startswith(_COMPONENTS) and file.suffix == ".onnx"


def _suffix_of(named_graph: Path | None) -> str:
    for component in _COMPONENTS:
        if named_graph is not None and named_graph.stem.startswith(component):
            return named_graph.stem.removeprefix(component)
    return ""


def _find(folder: Path, component: str, suffix: str) -> Path | None:
    for parent in (folder, folder / "onnx"):
        for candidate in dict.fromkeys((suffix, *_SUFFIXES)):
            path = parent / f"{component}{candidate}.onnx"
            if path.is_file():
                return path
    return None
