"""Test that images are answered as alone, in batches of one shape."""

import numpy as np
import pytest

from app.core.settings.model import ModelSource
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.torch.images import Items, Tensors, batched_model
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem
from tests.plugins.transformers.torch.asking import FolderOf, Served, answers, boxes_of, image_input, scene


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
    batches: list[tuple[int, ...]] = []

    def run(items: Items, tensors: Tensors) -> list[tuple[int, ...]]:
        batches.append(tensors["pixel_values"].shape)
        return [item.image.pixels.shape[:2] for item in items]

    scenes = (scene(96, 64), scene(64, 96), scene(192, 128), scene(64, 96, 5))
    items = [ImageItem(Image(pixels), SelectionParameters()) for pixels in scenes]
    processor = load_image_processor(ModelSource(name="m", version="1", folder=folder_of("detr")))
    sizes = batched_model(processor, run)(items)
    assert sizes == [(64, 96), (96, 64), (128, 192), (96, 64)]
    assert batches == [(2, 3, 64, 96), (2, 3, 96, 64)]
