"""The Hugging Face files beside a model: ``config.json`` and ``preprocessor_config.json``.

Field names are those that transformers and timm write with ``save_pretrained``. Unknown fields are ignored.
"""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from app.settings.model import ModelSource, read_json_file

__all__ = ("Config", "Neighbours", "Preprocessor", "Size", "TimmPreprocessing", "read_neighbours")

T = TypeVar("T")

Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]
"""Pixels."""


class TimmPreprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of ``pretrained_cfg`` in the ``config.json`` that timm writes: how its pictures are prepared.

    Attributes:
        input_size: (channels, height, width).
        mean: for R, G, B of pixels 0..1.
        std: for R, G, B of pixels 0..1.
        crop_pct: of the resized picture, how much is kept.
        crop_mode: `center` keeps the aspect ratio, `squash` does not, `border` pads.
    """

    input_size: tuple[int, int, int] | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    crop_pct: float | None = None
    crop_mode: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of ``config.json``."""

    model_type: str | None = None
    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    label_names: list[str] | None = None
    pretrained_cfg: TimmPreprocessing | None = None
    id2label: dict[str, str] | None = None
    # Not `Side`: msgspec 0.22 crashes in the garbage collector over a constrained number beside a tuple in one union.
    image_size: int | tuple[int, int] | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Class names by class number; None when the numbers are not 0, 1, ..."""
        if not self.id2label:
            return tuple(self.label_names) if self.label_names else None
        names = [self.id2label.get(str(number)) for number in range(len(self.id2label))]
        return tuple(name for name in names if name is not None) if None not in names else None

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) in pixels."""
        if self.pretrained_cfg is not None and self.pretrained_cfg.input_size is not None:
            return self.pretrained_cfg.input_size[1:]
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A size in either of the two ways in which transformers gives one, pixels."""

    height: Side | None = None
    width: Side | None = None
    shortest_edge: Side | None = None
    longest_edge: Side | None = None

    @property
    def sides(self) -> tuple[int, int] | None:
        """(height, width), when both are given."""
        return None if self.height is None or self.width is None else (self.height, self.width)


class Preprocessor(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of ``preprocessor_config.json``: None is a field that its processor class has a default for."""

    do_resize: bool | None = None
    size: Side | Size | None = None
    crop_pct: Annotated[float, msgspec.Meta(ge=0.1)] | None = None
    do_center_crop: bool | None = None
    crop_size: Side | Size | None = None
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: tuple[float, float, float] | None = None
    image_std: tuple[float, float, float] | None = None
    do_flip_channel_order: bool | None = None


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """The files found, None for each that is not there."""

    config: Config | None = None
    preprocessor: Preprocessor | None = None


def read_neighbours(source: ModelSource, file: Path) -> Neighbours:
    """Look beside the model file, then in the model's folder (exports put the graph in a sub-folder, ``onnx/``).

    Raises:
        ModelError: for a file that is there and cannot be understood.
    """
    folders = (file.parent, source.folder)
    return Neighbours(
        config=_read(folders, "config.json", Config),
        preprocessor=_read(folders, "preprocessor_config.json", Preprocessor),
    )


def _read(folders: tuple[Path, ...], name: str, kind: type[T]) -> T | None:
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    return None if path is None else read_json_file(path, kind)
