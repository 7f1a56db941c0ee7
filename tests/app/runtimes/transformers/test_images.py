"""A table in the processor's place gives what the processor gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.runtimes.transformers.images import TOLERANCE, ImagePreparation, load_image_processor, table_preparation
from app.settings.model import ModelSource
from tasks.vision.image import Image
from tests.app.runtimes.transformers.asking import picture, scene
from tests.support import tiny

pytestmark = pytest.mark.slow


def preparation(folder: Path) -> ImagePreparation:
    return ImagePreparation(load_image_processor(ModelSource(name="m", version="1", folder=folder)))


@given(
    name=st.sampled_from(["vit", "segformer", "rt_detr", "siglip"]),
    width=st.integers(1, 150),
    height=st.integers(1, 150),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_table_is_within_its_tolerance_of_the_processor(
    folder_of: Callable[[str], Path], name: str, width: int, height: int, seed: int
) -> None:
    processor = load_image_processor(ModelSource(name=name, version="1", folder=folder_of(name)))
    fast = table_preparation(processor)
    assert fast is not None
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    expected = processor(images=picture(noise), return_tensors="np")["pixel_values"]
    assert np.abs(fast(noise) - expected).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "by_table"), [("vit", True), ("rt_detr", True), ("segformer", True), ("detr", False), ("resnet", False)]
)
def test_the_table_is_taken_where_it_is_equal(folder_of: Callable[[str], Path], name: str, by_table: bool) -> None:
    assert preparation(folder_of(name)).by_table is by_table


def test_a_processor_that_does_more_than_it_says_keeps_its_place() -> None:
    kind: Any = tiny.transformers().ViTImageProcessorPil

    def inverted(self: Any, *arguments: object, **more: object) -> Any:
        made = kind.__call__(self, *arguments, **more)
        made["pixel_values"] = -made["pixel_values"]
        return made

    processor: Any = type("Inverting", (kind,), {"__call__": inverted})(size={"height": 16, "width": 16})
    assert table_preparation(processor) is not None
    assert not ImagePreparation(processor).by_table


def test_pictures_are_put_together_by_the_shape_of_what_was_made(folder_of: Callable[[str], Path]) -> None:
    made = preparation(folder_of("detr"))
    pictures = [Image(scene(96, 64)), Image(scene(64, 96)), Image(scene(192, 128)), Image(scene(64, 96, 5))]
    batches = list(made.batches(pictures))
    assert [list(each.indices) for each in batches] == [[0, 2], [1, 3]]
    assert [each.sizes for each in batches] == [[(64, 96), (128, 192)], [(96, 64), (96, 64)]]
    assert [tuple(each.tensors["pixel_values"].shape) for each in batches] == [(2, 3, 64, 96), (2, 3, 96, 64)]
