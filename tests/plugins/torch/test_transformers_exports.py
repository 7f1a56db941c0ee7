"""Compare ONNX exports of transformers models with the post-processing of their image processors.

The weights are random. The image has the size of the input, so both sides see the same pixels.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelSource
from tasks.image_classification import Classification
from tasks.image_segmentation import Segments
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, Tensor
from tasks.object_detection import Detections
from tasks.vision.contours import mask_of_contours
from tasks.vision.image import decode_image

pytestmark = [
    pytest.mark.slow,
    # The exporter that needs no further package is deprecated.
    pytest.mark.filterwarnings("ignore"),
]

NAMES = {number: f"class {number}" for number in range(5)}
LABELS = {"id2label": NAMES, "label2id": {name: number for number, name in NAMES.items()}}


@pytest.fixture(scope="module")
def torch() -> Any:
    return importlib.import_module("torch")


@pytest.fixture(scope="module")
def transformers() -> Any:
    return importlib.import_module("transformers")


def crop_of_photo(height: int, width: int) -> NDArray[np.uint8]:
    photo = decode_image((Path(__file__).parents[3] / "fixtures" / "images" / "photo.jpg").read_bytes())
    return np.ascontiguousarray(photo.pixels[:height, :width])


def export(torch: Any, folder: Path, model: Any, processor: Any, size: tuple[int, int], *outputs: str) -> Path:
    """Write the model as optimum does: the graph, and the configurations of model and processor beside it."""

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.model = model

        def forward(self, pixel_values: Any) -> Any:
            found = self.model(pixel_values=pixel_values)
            return tuple(found[name] for name in outputs)

    model.config.architectures = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    processor.save_pretrained(folder)
    torch.onnx.export(
        Exported().eval(),
        (torch.rand(1, 3, *size),),
        str(folder / "model.onnx"),
        input_names=["pixel_values"],
        output_names=list(outputs),
        dynamic_axes={name: {0: "batch"} for name in ("pixel_values", *outputs)},
        opset_version=17,
        dynamo=False,
    )
    return folder


def with_scaled_weights(model: Any, name: str, factor: float) -> Any:
    """Scale random weights, because small ones make all classes equally likely."""
    for key, weights in model.named_parameters():
        if name in key:
            weights.data *= factor
    return model.eval()


def predict(folder: Path, pixels: NDArray[np.uint8], **parameters: object) -> Any:
    servable = load(ModelSource(name="model", version="1", folder=folder))
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=pixels)
    request = InferenceRequest(id="1", model_name="model", inputs=(tensor,), parameters=parameters)
    assert not [fact for fact in servable.description.facts if fact.origin == "guessed"]
    return servable.predict(request, Limits()).outputs[0].predictions[0]


def test_vit_export_gives_same_scores_as_transformers(torch: Any, transformers: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=64,
        patch_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        **LABELS,
    )
    model = with_scaled_weights(transformers.ViTForImageClassification(config), "classifier", 30)
    processor = transformers.ViTImageProcessorPil(size={"height": 64, "width": 64})
    pixels = crop_of_photo(64, 64)
    found = predict(export(torch, tmp_path, model, processor, (64, 64), "logits"), pixels)
    assert isinstance(found, Classification)
    with torch.no_grad():
        expected = model(**processor(pixels, return_tensors="pt")).logits.softmax(-1)[0]
    order = np.argsort(-expected.numpy())
    assert found.labels == [NAMES[number] for number in order.tolist()]
    assert found.scores == pytest.approx(expected.numpy()[order], abs=1e-5)


@pytest.mark.parametrize("kind", ["detr", "yolos"])
def test_detr_and_yolos_exports_give_same_boxes_as_transformers(
    torch: Any, transformers: Any, tmp_path: Path, kind: str
) -> None:
    torch.manual_seed(0)
    size = (96, 128)
    if kind == "yolos":
        config = transformers.YolosConfig(
            image_size=list(size),
            patch_size=16,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            num_detection_tokens=12,
            **LABELS,
        )
        model = transformers.YolosForObjectDetection(config)
        processor = transformers.YolosImageProcessorPil(size={"height": 96, "width": 128})
    else:
        backbone = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage4"]
        )
        config = transformers.DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=backbone,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            num_queries=10,
            **LABELS,
        )
        model = transformers.DetrForObjectDetection(config)
        processor = transformers.DetrImageProcessorPil(size={"height": 96, "width": 128})
    model = with_scaled_weights(with_scaled_weights(model, "class_labels", 4), "bbox_predictor", 4)
    pixels = crop_of_photo(*size)
    found = predict(
        export(torch, tmp_path, model, processor, size, "logits", "pred_boxes"), pixels, score_threshold=0.02
    )
    assert isinstance(found, Detections)
    with torch.no_grad():
        answer = model(pixel_values=processor(pixels, return_tensors="pt")["pixel_values"])
    (expected,) = processor.post_process_object_detection(answer, threshold=0.02, target_sizes=[size])
    order = expected["scores"].argsort(descending=True, stable=True)
    assert len(found.scores) == len(order) >= 10
    assert found.scores == pytest.approx(expected["scores"][order].numpy(), abs=1e-5)
    boxes = np.clip(expected["boxes"].numpy(), 0, [128, 96, 128, 96])
    # Nearly equal scores may come in either order.
    assert np.sort(found.boxes, axis=0) == pytest.approx(np.sort(boxes, axis=0), abs=1e-2)


def test_segformer_export_gives_same_mask_as_transformers(torch: Any, transformers: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=32,
        **LABELS,
    )
    model = with_scaled_weights(transformers.SegformerForSemanticSegmentation(config), "decode_head.classifier", 20)
    processor = transformers.SegformerImageProcessorPil(size={"height": 128, "width": 128})
    pixels = crop_of_photo(128, 128)
    found = predict(export(torch, tmp_path, model, processor, (128, 128), "logits"), pixels, score_threshold=0.0)
    assert isinstance(found, Segments)
    with torch.no_grad():
        answer = model(**processor(pixels, return_tensors="pt"))
    (expected,) = processor.post_process_semantic_segmentation(answer, target_sizes=[(128, 128)])
    class_map = np.full((128, 128), -1)
    for label, contours in zip(found.labels, found.contours, strict=True):
        class_map[mask_of_contours(contours, 128, 128) > 0] = int(label.removeprefix("class "))
    assert len(found.labels) > 1
    # Two interpolations may differ by rounding at borders between classes.
    assert (class_map == expected.numpy()).mean() > 0.999
