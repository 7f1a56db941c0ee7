"""Find the three graphs of a vision-language model."""

from pathlib import Path

import msgspec

from app.settings.model import ModelError

__all__ = ("Graphs", "find_graphs", "is_piece")

_PIECES = ("vision_encoder", "embed_tokens", "decoder_model_merged")

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


def find_graphs(folder: Path, named: Path | None = None) -> Graphs:
    """Find the three graphs in `folder` or its ``onnx`` sub-folder.

    If a graph exists in several precisions, take the one with the suffix of `named`, or else the most precise.

    Args:
        folder: the model's folder.
        named: one of the graphs, if the settings name one.

    Raises:
        ModelError: if a graph is missing.
    """
    suffix = _suffix_of(named)
    found: list[Path] = []
    for piece in _PIECES:
        path = _find(folder, piece, suffix)
        if path is None:
            raise ModelError(f"{folder} has no {piece}.onnx, neither in itself nor in its onnx folder")
        found.append(path)
    return Graphs(vision_encoder=found[0], embed_tokens=found[1], decoder=found[2])


def is_piece(file: Path) -> bool:
    """Return whether a file has the name of one of the three graphs, in any precision."""
    return file.stem.startswith(_PIECES) and file.suffix == ".onnx"


def _suffix_of(named: Path | None) -> str:
    for piece in _PIECES:
        if named is not None and named.stem.startswith(piece):
            return named.stem.removeprefix(piece)
    return ""


def _find(folder: Path, piece: str, suffix: str) -> Path | None:
    for parent in (folder, folder / "onnx"):
        for candidate in dict.fromkeys((suffix, *_SUFFIXES)):
            path = parent / f"{piece}{candidate}.onnx"
            if path.is_file():
                return path
    return None
