"""Read the Hugging Face files in a model's folder: ``config.json`` and ``preprocessor_config.json``.

The fields are those that ``save_pretrained`` of transformers and timm writes. Unknown fields are ignored.
"""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from app.settings.model import ModelSource, read_json_file

T = TypeVar("T")

Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]
"""Pixels."""


class TimmPreprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """The preprocessing fields of ``pretrained_cfg`` in timm's ``config.json``.

    Attributes:
        input_size: (channels, height, width).
        mean: means of R, G, B for pixels in 0..1.
        std: standard deviations of R, G, B for pixels in 0..1.
        crop_pct: fraction of the resized image that is kept.
        crop_mode: `center` keeps the aspect ratio, `squash` does not, `border` pads.
        interpolation: name of the filter.
    """

    input_size: tuple[int, int, int] | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    crop_pct: float | None = None
    crop_mode: str | None = None
    interpolation: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of ``config.json``."""

    model_type: str | None = None
    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    label_names: list[str] | None = None
    pretrained_cfg: TimmPreprocessing | None = None
    id2label: dict[str, str] | None = None
    # Not `Side`: msgspec 0.22 crashes in the garbage collector for a union of a constrained number and a tuple.
    image_size: int | tuple[int, int] | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Return class names by class number; None if the numbers are not 0, 1, ..."""
        if not self.id2label:
            return tuple(self.label_names) if self.label_names else None
        names = [self.id2label.get(str(number)) for number in range(len(self.id2label))]
        return tuple(name for name in names if name is not None) if None not in names else None

    @property
    def size(self) -> tuple[int, int] | None:
        """Return the (height, width) of the input, pixels."""
        if self.pretrained_cfg is not None and self.pretrained_cfg.input_size is not None:
            return self.pretrained_cfg.input_size[1:]
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A size in either of the two forms of transformers, pixels."""

    height: Side | None = None
    width: Side | None = None
    shortest_edge: Side | None = None
    longest_edge: Side | None = None

    @property
    def sides(self) -> tuple[int, int] | None:
        """Return (height, width) if both are declared."""
        return None if self.height is None or self.width is None else (self.height, self.width)


class Preprocessor(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of ``preprocessor_config.json``. None stands for the default of the processor class."""

    image_processor_type: str | None = None
    do_resize: bool | None = None
    resample: int | str | None = None
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


def read_hugging_face_file(source: ModelSource, graph: Path, name: str, kind: type[T]) -> T | None:
    """Read a file from the folder of the graph, or else from the model's folder; None if it is missing.

    Exports may put the graph into the subfolder ``onnx``.

    Raises:
        ModelError: if the file cannot be parsed.
    """
    folders = (graph.parent, source.folder)
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    return None if path is None else read_json_file(path, kind)
