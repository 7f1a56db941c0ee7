"""TensorFlow Serving's REST API for `charioteer evaluate`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from app.plugins.evaluation.client_protocols import HttpClientProtocol, encode_base64


def _records(tensors: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return the records of one image from tensors without the batch dimension.

    Raise LookupError when expected tensors are missing.
    """
    if "answers" in tensors:
        pairs = zip(tensors["prompts"], tensors["answers"], strict=True)
        return [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]
    labels, scores = cast("Sequence[str]", tensors["labels"]), cast("Sequence[float]", tensors["scores"])
    count = tensors.get("num_detections", tensors.get("num_classes", len(labels)))
    records: list[dict[str, object]] = [
        {"label": label, "score": score} for label, score in list(zip(labels, scores, strict=True))[:count]
    ]
    if "contours" in tensors:
        for record, contour in zip(records, tensors["contours"], strict=False):
            record["contour"] = msgspec.json.decode(contour)
    if "boxes" in tensors:
        for record, box in zip(records, tensors["boxes"], strict=False):
            names = ("xmin", "ymin", "xmax", "ymax") if len(box) == 4 else ("cx", "cy", "w", "h", "r")
            record.update(zip(names, box, strict=True))
    return records


def _body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    prompts = {"prompts": parameters["prompts"]} if "prompts" in parameters else {}
    return {"json": {"instances": [{"image": {"b64": encode_base64(data)}, **prompts}]}}


CLIENTS = (
    HttpClientProtocol(
        name="tensorflow-serving",
        path=lambda model: f"/v1/models/{model}:predict",
        request=_body,
        records=lambda answer: _records(answer["predictions"][0]),
        takes_parameters=False,
    ),
)
