"""Test the inputs of graphs: images, and inputs that the server fills in."""

from pathlib import Path

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs, read_inputs
from app.core.settings.model import ModelError, ModelSettings, PreprocessingSettings
from tasks.inference.tensor import Datatype, TensorSpec


def spec(name: str, *shape: int, datatype: Datatype = Datatype.FP32) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


def read(*inputs: TensorSpec, channels_last: bool | None = None) -> ImageInputs:
    settings = ModelSettings(preprocessing=PreprocessingSettings(channels_last=channels_last))
    evidence = ModelFiles(file=Path("model.onnx"), settings=settings, metadata=ExportMetadata())
    return read_inputs(inputs, evidence)


@pytest.mark.parametrize(
    ("shape", "declared", "channels_last", "sides"),
    [
        ((-1, 3, 8, 16), None, False, (8, 16)),
        ((-1, 8, 16, 3), None, True, (8, 16)),
        ((1, -1, -1, 3), None, True, (-1, -1)),
        ((-1, -1, -1, -1), None, False, (-1, -1)),
        ((-1, -1, -1, -1), True, True, (-1, -1)),
        # Three channels first are more likely than an image that is three pixels wide.
        ((-1, 3, 8, 3), None, False, (8, 3)),
        ((-1, 3, 8, 3), True, True, (3, 8)),
        ((-1, 1, 8, 16), None, False, (8, 16)),
        ((-1, 8, 16, 1), None, True, (8, 16)),
        ((-1, 1, 8, 3), None, True, (1, 8)),
        ((-1, 1, 8, 3), False, False, (8, 3)),
        ((-1, 1, 8, 1), None, False, (8, 1)),
    ],
)
def test_channel_axis_is_found(
    shape: tuple[int, ...], declared: bool | None, channels_last: bool, sides: tuple[int, int]
) -> None:
    found = read(spec("images", *shape), channels_last=declared)
    assert (found.channels_last, found.sides, found.batch) == (channels_last, sides, shape[0])


def test_pixel_mask_keeps_its_declared_size() -> None:
    found = read(spec("pixel_values", -1, 3, -1, -1), spec("pixel_mask", -1, 64, 64, datatype=Datatype.INT64))
    assert found.feeds(np.zeros((1, 3, 4, 6), np.float32), 4, 6)["pixel_mask"].shape == (1, 64, 64)


IMAGE = spec("images", -1, 3, 8, 8)


@pytest.mark.parametrize(
    ("inputs", "declared", "reason"),
    [
        (
            (spec("images", -1, 4),),
            None,
            r"should be images \[batch, 3, height, width\], or 1 instead of 3 for grey, but is images FP32 \[-1, 4\]",
        ),
        ((), None, "should be images"),
        ((spec("images", -1, 2, 8, 8),), None, r"\[batch, 3, height, width\], or 1 .* images FP32 \[-1, 2, 8, 8\]"),
        ((IMAGE,), True, r"\[batch, height, width, 3\], or 1"),
        ((spec("images", -1, 8, 8, 3),), False, r"\[batch, 3, height, width\], or 1"),
        ((spec("images", -1, 3, 8, 8, datatype=Datatype.INT64),), None, "FP32, FP16, UINT8, but is images INT64"),
        ((IMAGE, spec("other", -1, 3, 8, 8)), None, r'2 inputs.*; declare \{"task_type": "TENSOR"\}.*class.*models.md'),
        ((spec("images", -1, 4, 8, 8),), None, r'but is .*; declare \{"task_type": "TENSOR"\}.*class.*models.md'),
        ((IMAGE, spec("ids", -1, 7, datatype=Datatype.INT64)), None, r"ids INT64 \[-1, 7\]"),
        ((IMAGE, spec("size", -1, 2, datatype=Datatype.BYTES)), None, "takes 2 inputs"),
        ((IMAGE, spec("a_size", -1, 2), spec("b_size", -1, 2)), None, "takes 3 inputs"),
    ],
)
def test_unsupported_inputs_are_rejected(inputs: tuple[TensorSpec, ...], declared: bool | None, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read(*inputs, channels_last=declared)
