import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.hugging_face import Preprocessor
from app.core.settings.model import ModelError, PreprocessingSettings
from app.plugins.text.image_text_to_text.pixels import (
    TiledImageProcessor,
    decide_recipe,
    read_processor_configuration,
    single_image_processor,
)
from tasks.vision.image import Image
from tests.support.data.rounding import assert_equal_but_for_rounding

SHAPES = [(48, 64), (64, 48), (33, 77), (20, 20), (5, 90), (300, 200)]
CONFIGS: list[dict[str, object]] = [
    {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 28},
        "crop_size": {"height": 28, "width": 28},
    },
    {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 27, "width": 24},
    },
    {
        "image_processor_type": "CLIPImageProcessorFast",
        "size": {"shortest_edge": 20},
        "crop_size": {"height": 31, "width": 31},
    },
    {"image_processor_type": "CLIPImageProcessor"},
    {
        "image_processor_type": "LlavaImageProcessor",
        "size": {"shortest_edge": 16},
        "crop_size": {"height": 16, "width": 16},
    },
    {"image_processor_type": "SiglipImageProcessor", "size": {"height": 28, "width": 36}},
    {"image_processor_type": "SiglipImageProcessor", "size": {"height": 28, "width": 28}, "resample": 2},
    {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "resample": 3},
    {"image_processor_type": "ViTImageProcessor"},
    {"image_processor_type": "ViTImageProcessor", "size": 30, "do_normalize": False},
    {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 9, "width": 9},
        "do_rescale": False,
        "resample": 0,
    },
    {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 32, "width": 32},
        "rescale_factor": 0.01,
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.5, 0.6],
        "resample": 1,
    },
    {"image_processor_type": "CLIPImageProcessor", "size": 28, "crop_size": 24},
    {"image_processor_type": "ViTImageProcessor", "size": 28, "do_center_crop": True, "crop_size": 24},
    {"image_processor_type": "SiglipImageProcessor", "size": 28, "do_center_crop": True, "crop_size": 32},
    {"image_processor_type": "LlavaImageProcessor", "size": 28, "crop_size": 28, "do_pad": True},
    {"image_processor_type": "LlavaImageProcessor", "size": 28, "do_center_crop": False, "do_pad": True},
    {"image_processor_type": "LlavaImageProcessor", "size": 28, "crop_size": 24, "do_pad": True, "resample": 0},
]


def noise(height: int, width: int) -> Image:
    return Image(np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8))


def pixel_values_of(folder: Path, config: Mapping[str, object], image: Image) -> NDArray[np.float32]:
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    recipe, _ = decide_recipe(read_processor_configuration(folder), PreprocessingSettings(), folder)
    return single_image_processor(recipe)(image).pixel_values


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", CONFIGS)
def test_pixels_equal_those_of_hugging_face(tmp_path: Path, config: dict[str, object]) -> None:
    transformers: Any = importlib.import_module("transformers")

    for shape in SHAPES:
        image = noise(*shape)
        actual = pixel_values_of(tmp_path, config, image)
        processor: Any = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
        expected = processor(image.pixels, return_tensors="np")["pixel_values"]
        assert actual.dtype == np.float32
        if config.get("resample") == 0:
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
        else:
            std = np.array(processor.image_std if processor.do_normalize else (1, 1, 1)).reshape(3, 1, 1)
            assert_equal_but_for_rounding(actual, expected, step=processor.rescale_factor / std)


def test_processor_config_json_gives_same_pixels(tmp_path: Path) -> None:
    expected = pixel_values_of(tmp_path, CONFIGS[0], noise(48, 64))
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": CONFIGS[0], "patch_size": 14}))
    recipe, _ = decide_recipe(read_processor_configuration(tmp_path), PreprocessingSettings(), tmp_path)
    np.testing.assert_array_equal(single_image_processor(recipe)(noise(48, 64)).pixel_values, expected)


@pytest.mark.parametrize("shape", [(1, 60_000), (60_000, 1)])
def test_very_long_image_is_prepared_without_huge_resize(shape: tuple[int, int]) -> None:
    declared = (
        PreprocessingSettings(size=(336, 336), resize="crop"),
        PreprocessingSettings(size=(9, 9), resize="letterbox"),
    )
    for settings in declared:
        recipe, _ = decide_recipe(None, settings, Path())
        pixel_values = single_image_processor(recipe)(Image(np.full((*shape, 3), 255, np.uint8))).pixel_values
        assert pixel_values.shape == (1, 3, recipe.height, recipe.width)
        assert pixel_values.max() == 1


def test_letterboxed_image_is_complete_and_padded() -> None:
    settings = PreprocessingSettings(size=(4, 8), resize="letterbox")
    recipe = msgspec.structs.replace(decide_recipe(None, settings, Path())[0], fill=(255, 0, 51))
    pixel_values = single_image_processor(recipe)(Image(np.zeros((10, 10, 3), np.uint8))).pixel_values[0]
    assert np.flatnonzero(pixel_values[0, 0]).tolist() == [0, 1, 6, 7]
    np.testing.assert_allclose(pixel_values[:, 2, 0], [1, 0, 0.2])


def test_declared_settings_override_processor_file(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CONFIGS[0]))
    found = read_processor_configuration(tmp_path)
    declared = PreprocessingSettings(
        size=(8, 6), resize="stretch", scale=2.0, mean=(1, 2, 3), std=(4, 5, 6), channel_order="BGR"
    )
    recipe, _ = decide_recipe(found, declared, tmp_path)
    pixel_values = single_image_processor(recipe)(Image(np.full((5, 5, 3), (10, 20, 30), np.uint8))).pixel_values
    assert pixel_values.shape == (1, 3, 8, 6)
    np.testing.assert_allclose(pixel_values[0, :, 0, 0], [(60 - 3) / 6, (40 - 2) / 5, (20 - 1) / 4], rtol=1e-6)
    for resize, shorter_side in (("crop", 8), ("letterbox", 6)):
        changed, _ = decide_recipe(found, msgspec.structs.replace(declared, resize=resize), tmp_path)
        assert (changed.height, changed.width, changed.resize, changed.shorter_side) == (8, 6, resize, shorter_side)


def test_declared_filter_and_crop_fraction_are_used(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CONFIGS[0]))
    settings = PreprocessingSettings(interpolation="nearest", antialias=False, crop_fraction=0.5)
    recipe, _ = decide_recipe(read_processor_configuration(tmp_path), settings, tmp_path)
    assert (recipe.interpolation, recipe.antialias, recipe.shorter_side) == ("nearest", False, 56)


def test_unknown_filter_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**CONFIGS[0], "resample": 9}))
    with pytest.raises(ModelError, match=r"preprocessor_config.json gives a filter that is not supported: 9"):
        decide_recipe(read_processor_configuration(tmp_path), PreprocessingSettings(), tmp_path)
    config = Preprocessor(image_processor_type="Idefics3ImageProcessor", resample=9)
    with pytest.raises(ModelError, match="gives a filter that is not supported: 9"):
        TiledImageProcessor((config, tmp_path / "preprocessor_config.json"), tmp_path)


@pytest.mark.parametrize("family", ["CLIP", "Llava", "Siglip"])
def test_shorter_side_without_crop_is_rejected(tmp_path: Path, family: str) -> None:
    config = {"image_processor_type": f"{family}ImageProcessor", "size": 28, "do_center_crop": False}
    with pytest.raises(ModelError, match=r"preprocessor_config.json .* {'shortest_edge': 28} .* expected a size with"):
        pixel_values_of(tmp_path, config, noise(9, 9))


def test_strip_is_padded_to_square_of_bounded_size(tmp_path: Path) -> None:
    config = {"image_processor_type": "LlavaImageProcessor", "size": 28, "crop_size": 28, "do_pad": True}
    for shape in ((1, 60_000), (60_000, 1)):
        assert pixel_values_of(tmp_path, config, noise(*shape)).shape == (1, 3, 28, 28)


@pytest.mark.parametrize("changes", [{"image_mean": [float("nan")] * 3}, {"image_std": 0}, {"image_std": float("inf")}])
def test_statistics_that_make_no_numbers_are_rejected(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "preprocessor_config.json"
    error_text = r"preprocessor_config.json gives the mean .* and the standard deviation"
    path.write_text(json.dumps({**CONFIGS[0], **changes}))
    with pytest.raises(ModelError, match=error_text):
        decide_recipe(read_processor_configuration(tmp_path), PreprocessingSettings(), tmp_path)
    path.write_text(json.dumps({"image_processor_type": "Idefics3ImageProcessor", **changes}))
    with pytest.raises(ModelError, match=error_text):
        TiledImageProcessor(read_processor_configuration(tmp_path), tmp_path)


def test_background_of_means_in_bytes_is_a_byte(tmp_path: Path) -> None:
    config = {**CONFIGS[4], "do_pad": True, "do_rescale": False, "image_mean": [123, 0, -1], "image_std": 1}
    pixel_values = pixel_values_of(tmp_path, config, Image(np.zeros((8, 16, 3), np.uint8)))
    assert pixel_values[0, :, 0, 0].tolist() == [255 - 123, 0, 1]


def test_padding_is_declared(tmp_path: Path) -> None:
    recipe, _ = decide_recipe(None, PreprocessingSettings(size=(8, 8), resize="pad", fill=51), tmp_path)
    pixel_values = single_image_processor(recipe)(Image(np.zeros((8, 4, 3), np.uint8))).pixel_values
    np.testing.assert_allclose(pixel_values[0, 0, 0], [0, 0, 0, 0, 0.2, 0.2, 0.2, 0.2])


def test_declared_size_suffices_without_processor_file(tmp_path: Path) -> None:
    recipe, _ = decide_recipe(None, PreprocessingSettings(size=(8, 6)), tmp_path)
    pixel_values = single_image_processor(recipe)(Image(np.full((5, 5, 3), 51, np.uint8))).pixel_values
    np.testing.assert_allclose(pixel_values, np.full((1, 3, 8, 6), 0.2), rtol=1e-6)


def test_centre_crop_of_long_image_equals_crop_of_its_middle() -> None:
    long, short = noise(20, 700), noise(20, 700).pixels[:, 250:450]
    recipe, _ = decide_recipe(None, PreprocessingSettings(size=(28, 28), resize="crop"), Path())
    difference = (
        single_image_processor(recipe)(long).pixel_values - single_image_processor(recipe)(Image(short)).pixel_values
    )
    assert np.abs(difference).max() <= 1.01 / 255
