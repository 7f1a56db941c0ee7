"""Test that preprocessing by table equals the image processor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.settings.model import ModelSource
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.torch.images import Batch, ImagePreparation, table_preparation
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem
from tests.plugins.transformers.torch.asking import FolderOf, Served, answers, boxes_of, image_input, pil_image, scene
from tests.support.data.rounding import assert_equal_but_for_rounding
from tests.support.models import tiny_models


def preparation(folder: Path) -> ImagePreparation:
    return ImagePreparation(load_image_processor(ModelSource(name="m", version="1", folder=folder)))


@given(
    name=st.sampled_from(["vit", "segformer", "rt_detr", "siglip"]),
    width=st.integers(1, 150),
    height=st.integers(1, 150),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_table_equals_rounded_processor(folder_of: FolderOf, name: str, width: int, height: int, seed: int) -> None:
    processor = load_image_processor(ModelSource(name=name, version="1", folder=folder_of(name)))
    table = table_preparation(processor)
    assert table is not None
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    expected = processor(images=pil_image(noise), return_tensors="np")["pixel_values"]
    if min(width, height) >= 32:
        assert_equal_but_for_rounding(table(noise), expected, step=table.step, share=0.02)
    else:  # each byte is repeated, so that one that differs is many
        assert np.abs(table(noise) - expected).max() < 2.01 * np.max(table.step)


@pytest.mark.parametrize(
    ("name", "by_table"), [("vit", True), ("rt_detr", True), ("segformer", True), ("detr", False), ("resnet", False)]
)
def test_table_is_used_where_it_equals_processor(folder_of: FolderOf, name: str, by_table: bool) -> None:
    assert (preparation(folder_of(name)).table is not None) is by_table


def test_processor_with_extra_steps_is_not_replaced_by_table() -> None:
    processor_class: Any = tiny_models.transformers().ViTImageProcessorPil

    def inverted(self: Any, *arguments: object, **options: object) -> Any:
        outputs = processor_class.__call__(self, *arguments, **options)
        outputs["pixel_values"] = -outputs["pixel_values"]
        return outputs

    processor: Any = type("Inverting", (processor_class,), {"__call__": inverted})(size={"height": 16, "width": 16})
    assert table_preparation(processor) is not None
    assert ImagePreparation(processor).table is None


@pytest.mark.parametrize("name", ["resnet", "detr", "yolos", "rt_detr", "d_fine", "mask2former"])
def test_images_of_several_sizes_are_answered_in_order_as_alone(served: Served, name: str) -> None:
    images = [scene(150, 90, 1), scene(60, 120, 2), scene(150, 90, 3)]
    parameters = {"score_threshold": 0.1 if name == "mask2former" else 0.0}
    batched = answers(served(name), image_input(*images, **parameters))
    for pixels, found in zip(images, batched, strict=True):
        (alone,) = answers(served(name), image_input(pixels, **parameters))
        assert [record.score for record in found] == pytest.approx([record.score for record in alone], abs=1e-3)
        if hasattr(found[0], "xmin"):
            assert np.abs(boxes_of(found) - boxes_of(alone)).max() < 1e-2
        else:
            assert [record.label for record in found] == [record.label for record in alone]


def test_images_are_batched_by_preprocessed_shape(folder_of: FolderOf) -> None:
    batches: list[Batch] = []

    def run(batch: Batch) -> list[tuple[int, int]]:
        batches.append(batch)
        return list(batch.sizes)

    scenes = (scene(96, 64), scene(64, 96), scene(192, 128), scene(64, 96, 5))
    items = [ImageItem(Image(pixels), SelectionParameters()) for pixels in scenes]
    sizes = preparation(folder_of("detr")).model(run)(items)
    assert sizes == [(64, 96), (96, 64), (128, 192), (96, 64)]
    assert [batch.sizes for batch in batches] == [[(64, 96), (128, 192)], [(96, 64), (96, 64)]]
    assert [tuple(batch.tensors["pixel_values"].shape) for batch in batches] == [(2, 3, 64, 96), (2, 3, 96, 64)]
