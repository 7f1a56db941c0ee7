"""Deliberate faults in predictions, for both of Chariot's protocols."""

import base64
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import cv2
import httpx
import numpy as np

from app.plugins.conformance.sample_images import BLANK_IMAGE
from tests.plugins.conformance.deliberate_faults.spoiling import change_body
from tests.plugins.conformance.engines import BARS, AnswerFault, Fault, RequestFault

Item = dict[str, Any]

_JPEG = b"\xff\xd8"


def lists_in(answer: Any) -> Sequence[list[Item]]:
    """Return the list of items for each image."""
    if not isinstance(answer, dict):
        return []
    body = cast("Item", answer)
    if "output" in body:
        return [body["output"]]
    return [output["data"][0] for output in body.get("outputs", ()) if output["data"]]


def images_in(request: httpx.Request) -> Sequence[bytes]:
    """Return the encoded images of a request."""
    if request.headers.get("content-type", "").startswith("image/"):
        return [request.content]
    try:
        body: Any = json.loads(request.content)
        texts = [body["input"]] if "input" in body else [tensor["data"][0] for tensor in body["inputs"]]
        return [base64.b64decode(text) for text in texts]
    except (KeyError, TypeError, ValueError):
        return []


def change_lists(change: Callable[[list[Item]], object]) -> AnswerFault:
    """Change every list of items."""

    def fault(_: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200:
            for item_list in lists_in(answer):
                change(item_list)
        return status, answer

    return fault


def change_items(change: Callable[[Item], object]) -> AnswerFault:
    """Change every item."""

    def change_all(item_list: list[Item]) -> None:
        for item in item_list:
            change(item)

    return change_lists(change_all)


def change_sized_items(change: Callable[[Item, int, int], object]) -> AnswerFault:
    """Change every item, given the width and height of its image."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        if status == 200:
            for image, item_list in zip(images_in(request), lists_in(answer), strict=False):
                decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
                height, width = np.asarray(decoded).shape[:2]
                for item in item_list:
                    change(item, width, height)
        return status, answer

    return fault


def scale(item: Item, across: float, down: float, names: str = "xmin ymin xmax ymax") -> None:
    for index, name in enumerate(names.split()):
        item[name] *= down if index % 2 else across


def scale_points(item: Item, across: float, down: float) -> None:
    for contour in item["contour"]:
        for point in contour:
            scale(point, across, down, "x y")


def move_points(item: Item) -> None:
    for contour in item["contour"]:
        for point in contour:
            point["x"] -= 700


def reject_images(matches: Callable[[bytes], bool]) -> AnswerFault:
    """Reject the images that match, as an engine without their decoder does."""

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        return (500, {"error": "no"}) if any(map(matches, images_in(request))) else (status, answer)

    return fault


def is_png(depth: int, colours: int) -> Callable[[bytes], bool]:
    """Return a matcher of PNG images by bit depth and colour type (PNG, 11.2.2)."""
    return lambda image: image[1:4] == b"PNG" and (image[24], image[25]) == (depth, colours)


def score_decrease(request: httpx.Request, seen: dict[bytes, int]) -> float:
    """Return by how much to lower scores; it grows each time that a request with a JPEG repeats."""
    seen[request.content] = seen.get(request.content, -1) + 1
    return 0.2 * seen[request.content] if any(image.startswith(_JPEG) for image in images_in(request)) else 0


def unstable_scores() -> AnswerFault:
    """Return lower scores for each repeated request."""
    seen: dict[bytes, int] = {}

    def fault(request: httpx.Request, status: int, answer: Any) -> tuple[int, Any]:
        decrease = score_decrease(request, seen)
        for item in itertools.chain.from_iterable(lists_in(answer)):
            item["score"] -= decrease
        return status, answer

    return fault


def without_exif(body: Item) -> None:
    """Remove EXIF from the images."""
    if "input" in body:
        body["input"] = _strip_exif(body["input"])
    for tensor in body.get("inputs", ()):
        tensor["data"][0] = _strip_exif(tensor["data"][0])


def _strip_exif(text: str) -> str:
    try:
        image = base64.b64decode(text, validate=True)
    except ValueError:
        return text
    if image[:4] != _JPEG + b"\xff\xe1":
        return text
    length = int.from_bytes(image[4:6], "big")
    return base64.b64encode(_JPEG + image[4 + length :]).decode()


def without_threshold(body: dict[str, Any]) -> None:
    for scope in (body, *body.get("inputs", ())):
        if isinstance(scope.get("parameters"), dict) and isinstance(scope["parameters"].get("score_threshold"), float):
            del scope["parameters"]["score_threshold"]


def repeat_first_item(item_list: list[Item]) -> None:
    item_list[1:1] = item_list[:1]


ANSWER_FAULTS: dict[str, tuple[str, str, AnswerFault]] = {
    "missing corner": ("detector", "I01", change_items(lambda item: item.pop("ymax"))),
    "label of numbers": ("detector", "I02", change_items(lambda item: item.update(label=3))),
    "score of text": ("detector", "I03", change_items(lambda item: item.update(score=str(item["score"])))),
    "score of text, classes": ("classifier", "I03", change_items(lambda item: item.update(score=str(item["score"])))),
    "score in per cent": ("detector", "I04", change_items(lambda item: item.update(score=item["score"] * 100))),
    "worst first": ("detector", "I05", change_lists(lambda found: found.reverse())),
    "a label twice": ("classifier", "I07", change_lists(repeat_first_item)),
    "answer that is a list": ("vlm", "I08", change_items(lambda item: item.update(answer=[item["answer"]]))),
    "prompts not returned": ("vlm", "I09", change_items(lambda item: item.update(prompt="?"))),
    "no JPEG": ("detector", "I11", reject_images(lambda image: image.startswith(_JPEG))),
    "no grey": ("detector", "I12", reject_images(is_png(8, 0))),
    "no alpha": ("detector", "I13", reject_images(is_png(8, 6))),
    "no sixteen bits": ("detector", "I14", reject_images(is_png(16, 2))),
    "plain image is an error": ("detector", "I16", reject_images(lambda image: image == BLANK_IMAGE.data)),
    "corners of text": ("detector", "P01", change_items(lambda item: item.update(xmin=str(item["xmin"])))),
    "normalised boxes": ("detector", "P02", change_sized_items(lambda item, w, h: scale(item, 1 / w, 1 / h))),
    "boxes of the model's own frame": (
        "detector",
        "P03",
        change_sized_items(lambda item, w, h: scale(item, 320 / w, 320 / h)),
    ),
    "left and right swapped": (
        "detector",
        "P04",
        change_items(lambda item: item.update(xmin=item["xmax"], xmax=item["xmin"])),
    ),
    "boxes outside": (
        "detector",
        "P05",
        change_sized_items(lambda item, w, _: item.update(xmin=item["xmin"] + w, xmax=item["xmax"] + w)),
    ),
    "oriented boxes of text": ("oriented-detector", "P06", change_items(lambda item: item.update(r=str(item["r"])))),
    "oriented boxes in pixels": (
        "oriented-detector",
        "P07",
        change_sized_items(lambda item, w, h: scale(item, w, h, "cx cy w h")),
    ),
    "degrees": ("oriented-detector", "P08", change_items(lambda item: item.update(r=math.degrees(item["r"])))),
    "counter-clockwise rotation": (BARS, "P09", change_items(lambda item: item.update(r=-item["r"]))),
    "negative sides": ("oriented-detector", "P10", change_items(lambda item: item.update(w=-item["w"]))),
    "flat contour": ("segmenter", "P11", change_items(lambda item: item.update(contour=item["contour"][0]))),
    "points of lists": (
        "segmenter",
        "P11",
        change_items(lambda item: item.update(contour=[[[p["x"], p["y"]] for p in c] for c in item["contour"]])),
    ),
    "normalised contours": (
        "segmenter",
        "P12",
        change_sized_items(lambda item, w, h: scale_points(item, 1 / w, 1 / h)),
    ),
    "contours of the model's own frame": (
        "segmenter",
        "P13",
        change_sized_items(lambda item, w, h: scale_points(item, 320 / w, 320 / h)),
    ),
    "contours outside": ("segmenter", "P14", change_items(move_points)),
}
"""For each fault the model, the check that must fail, and the change of the answer."""

REQUEST_FAULTS: dict[str, tuple[str, str, RequestFault]] = {
    "threshold ignored": ("detector", "I06", change_body(without_threshold)),
    "EXIF ignored": ("detector", "I10", change_body(without_exif)),
}
"""For each fault the model, the check that must fail, and the change of the request."""


def faults(protocol: str, prefix: str) -> dict[str, Fault]:
    """Return all faults for a protocol, whose checks have ids that start with `prefix`."""
    all_faults = {
        name: Fault(protocol=protocol, model=model, check=f"{prefix}-{check}", change_answer=change_answer)
        for name, (model, check, change_answer) in ANSWER_FAULTS.items()
    }
    for name, (model, check, change_request) in REQUEST_FAULTS.items():
        all_faults[name] = Fault(
            protocol=protocol, model=model, check=f"{prefix}-{check}", change_request=change_request
        )
    all_faults["unstable scores"] = Fault(
        protocol=protocol, model="detector", check=f"{prefix}-I15", change_answer=unstable_scores()
    )
    return all_faults
