"""Test how preprocessing is decided, and which file each value comes from."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs
from app.core.runtimes.onnxruntime.images.decision import decide_preprocessing
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.core.settings.model import ModelError, ModelSettings, PreprocessingSettings
from app.plugins.transformers.hugging_face.beside_graph import describe
from app.plugins.transformers.hugging_face.files import Config, Preprocessor, Size, TimmPreprocessing
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType

HALF = (0.5, 0.5, 0.5)
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
IMAGE_STATS: dict[str, Any] = {"image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"]}
RAW: dict[str, Any] = {"do_normalize": False}
CLASSIFY, DETECT = TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION


def spec(height: int = -1, width: int = -1, datatype: Datatype = Datatype.FP32) -> ImageInputs:
    return ImageInputs(image=TensorSpec(name="images", datatype=datatype, shape=(-1, 3, height, width)))


def evidence(
    declared: PreprocessingSettings | None = None,
    metadata: ExportMetadata | None = None,
    processor: Preprocessor | None = None,
    config: Config | None = None,
) -> ModelFiles:
    return ModelFiles(
        file=Path("model.onnx"),
        settings=ModelSettings(preprocessing=declared or PreprocessingSettings()),
        metadata=metadata or ExportMetadata(),
        folder=describe(config or Config(), processor),
    )


def decided(
    known: ModelFiles, task_type: TaskType = CLASSIFY, inputs: ImageInputs | None = None
) -> tuple[Preprocessing, dict[str, Origin]]:
    facts: list[Fact] = []
    preprocessing = decide_preprocessing(inputs or spec(), known, facts, task_type)
    return preprocessing, {fact.topic: fact.origin for fact in facts}


def test_preprocessing_is_guessed_without_evidence() -> None:
    preprocessing, origins = decided(evidence())
    assert preprocessing == Preprocessing(height=224, width=224, resize="crop", shorter_side=224, **IMAGENET)
    assert set(origins.values()) == {Origin.GUESSED}
    preprocessing, origins = decided(evidence(), DETECT)
    assert preprocessing == Preprocessing(
        height=640, width=640, resize="letterbox", shorter_side=640, antialias=False, box_scale="common"
    )
    assert set(origins.values()) == {Origin.GUESSED}


@pytest.mark.parametrize(("task", "resize"), [("classify", "crop"), ("detect", "letterbox"), ("segment", "letterbox")])
def test_ultralytics_metadata_implies_its_convention(task: str, resize: Any) -> None:
    known = evidence(metadata=ExportMetadata(task=task, size=(320, 640)))
    task_type = CLASSIFY if task == "classify" else DETECT
    preprocessing, origins = decided(known, task_type)
    details: dict[str, Any] = {} if resize == "crop" else {"antialias": False, "box_scale": "common"}
    assert preprocessing == Preprocessing(height=320, width=640, resize=resize, shorter_side=320, **details)
    assert set(origins.values()) == {Origin.MODEL_FILE}


SQUARE, CROP = Size(height=224, width=224), {"do_center_crop": True}


def squares(side: int, resize: Any, shorter_side: int, **options: Any) -> Preprocessing:
    return Preprocessing(height=side, width=side, resize=resize, shorter_side=shorter_side, **options)


def edge(side: int, **fields: Any) -> Preprocessor:
    """Return a file with the shortest edge before a crop, without normalisation by default."""
    return Preprocessor(size=Size(shortest_edge=side), **(fields if "image_mean" in fields else {**RAW, **fields}))


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        # ViTImageProcessor, and ViTFeatureExtractor, before sizes were objects
        (
            Preprocessor(size=SQUARE, rescale_factor=1 / 255, image_mean=HALF, image_std=HALF),
            squares(224, "stretch", 224, mean=HALF, std=HALF),
        ),
        (Preprocessor(size=224, rescale_factor=0.01, **RAW), squares(224, "stretch", 224, scale=0.01)),
        # CLIPImageProcessor, EfficientNetImageProcessor, MobileViTImageProcessor
        (edge(256, crop_size=SQUARE, **CROP), squares(224, "crop", 256)),
        (
            Preprocessor(size=Size(height=256, width=256), crop_size=SQUARE, do_rescale=False, **CROP, **RAW),
            squares(224, "stretch", 256, scale=1),
        ),
        (edge(288, crop_size=256, do_flip_channel_order=True, **CROP), squares(256, "crop", 288, bgr=True)),
        # ConvNextImageProcessor, which ResNet uses too, and its predecessor
        (edge(224, crop_pct=0.875, **IMAGE_STATS), squares(224, "crop", 256, **IMAGENET)),
        (edge(384, crop_pct=0.875, **IMAGE_STATS), squares(384, "stretch", 384, **IMAGENET)),
        (
            Preprocessor(feature_extractor_type="ConvNextFeatureExtractor", size=224, crop_pct=0.875, **RAW),
            squares(224, "crop", 256),
        ),
        # LevitImageProcessor
        (edge(224, image_processor_type="LevitImageProcessor", crop_size=224, **CROP), squares(224, "crop", 256)),
    ],
)
def test_hugging_face_preprocessor_files_are_followed(processor: Preprocessor, expected: Preprocessing) -> None:
    preprocessing, origins = decided(evidence(processor=processor))
    assert preprocessing == msgspec.structs.replace(expected, crop="transformers")
    assert set(origins.values()) == {Origin.PREPROCESSOR}


def test_settings_override_all_files() -> None:
    values: dict[str, Any] = {
        "resize": "stretch", "interpolation": "area", "antialias": False, "fill": 3, "scale": 1, "mean": (1, 2, 3),
        "std": (4, 5, 6), "crop": "paddle",
    }  # fmt: skip
    declared = PreprocessingSettings(size=(32, 64), channel_order="BGR", **values)
    metadata = ExportMetadata(task="detect", size=(1, 1), interpolation="lanczos", antialias=True)
    known = evidence(declared, metadata, Preprocessor(size=7, resample=3), Config(image_size=9))
    preprocessing, origins = decided(known, DETECT)
    assert preprocessing == Preprocessing(height=32, width=64, shorter_side=32, bgr=True, **values)
    assert set(origins.values()) == {Origin.DECLARED}


LANCZOS = ExportMetadata(interpolation="lanczos", antialias=False)


@pytest.mark.parametrize(
    ("known", "interpolation", "antialias", "origin"),
    [
        (evidence(processor=Preprocessor(resample=3)), "bicubic", True, Origin.PREPROCESSOR),
        (evidence(processor=Preprocessor(resample=0)), "nearest", True, Origin.PREPROCESSOR),
        (evidence(config=Config(pretrained_cfg=TimmPreprocessing())), "bicubic", True, Origin.CONFIG),
        (evidence(config=Config(pretrained_cfg=TimmPreprocessing(interpolation="box"))), "area", True, Origin.CONFIG),
        (evidence(metadata=LANCZOS), "lanczos", False, Origin.MODEL_FILE),
        (evidence(metadata=ExportMetadata(task="classify")), "bilinear", True, Origin.MODEL_FILE),
        (evidence(), "bilinear", True, Origin.GUESSED),
    ],
)
def test_resampling_follows_files(known: ModelFiles, interpolation: str, antialias: bool, origin: Origin) -> None:
    preprocessing, origins = decided(known)
    assert (preprocessing.interpolation, preprocessing.antialias) == (interpolation, antialias)
    assert origins["interpolation"] is origins["antialiasing"] is origin


def test_mean_in_pixel_values_implies_scale_of_one() -> None:
    preprocessing, origins = decided(evidence(PreprocessingSettings(mean=(123.675, 116.28, 103.53))))
    assert preprocessing.scale == 1
    assert preprocessing.std == (1, 1, 1)
    assert (origins["mean"], origins["scale"]) == (Origin.DECLARED, Origin.GUESSED)


def test_uint8_inputs_are_not_normalised() -> None:
    preprocessing, origins = decided(evidence(), inputs=spec(64, 64, Datatype.UINT8))
    assert (preprocessing.scale, preprocessing.mean, preprocessing.std) == (1, (0, 0, 0), (1, 1, 1))
    assert origins["normalisation"] is Origin.MODEL_FILE


def test_fixed_graph_size_overrides_files() -> None:
    known = evidence(metadata=ExportMetadata(task="classify", size=(32, 32)), config=Config(image_size=9))
    preprocessing, origins = decided(known, inputs=spec(48, 64))
    assert (preprocessing.height, preprocessing.width) == (48, 64)
    assert origins["input size"] is Origin.MODEL_FILE


def test_a_graph_may_fix_one_side() -> None:
    preprocessing, _ = decided(evidence(config=Config(image_size=96)), inputs=spec(48, -1))
    assert (preprocessing.height, preprocessing.width) == (48, 96)


@pytest.mark.parametrize(
    ("known", "inputs", "reason"),
    [
        (evidence(PreprocessingSettings(size=(32, 32))), spec(64, 64), "64x64 pixels, but .* declares 32x32"),
        (evidence(PreprocessingSettings(std=(1, 0, 1))), spec(), "settings.json declares a standard deviation of 0"),
        (
            evidence(PreprocessingSettings(scale=1 / 255, mean=(123.675, 116.28, 103.53))),
            spec(),
            r'for pixels in 0..255, but scale 1/255 .* declare "scale": 1 .*: 0.485, 0.456, 0.406 and',
        ),
        (evidence(PreprocessingSettings(scale=1 / 255, std=(58, 57, 57))), spec(), "for pixels in 0..255"),
        (evidence(processor=Preprocessor(image_mean=(123, 116, 103))), spec(), "for pixels in 0..255"),
        (evidence(PreprocessingSettings(scale=0.5)), spec(8, 8, Datatype.UINT8), "uint8"),
        (evidence(config=Config(image_size=0)), spec(), "cannot be 0x0 pixels"),
        (evidence(processor=Preprocessor(image_std=(0, 1, 1))), spec(), "preprocessor_config.json declares a standard"),
    ],
)
def test_contradictory_settings_are_rejected(known: ModelFiles, inputs: ImageInputs, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        decided(known, inputs=inputs)


def test_fast_antialiasing_of_earlier_versions_is_that_of_pillow() -> None:
    preprocessing, origins = decided(evidence(PreprocessingSettings(antialias="fast")))
    assert preprocessing.antialias is True
    assert origins["antialiasing"] is Origin.DECLARED
