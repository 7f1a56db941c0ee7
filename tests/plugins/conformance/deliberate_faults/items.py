"""Deliberate faults in predictions, for both of Chariot's protocols."""

import base64
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import cv2
import httpx
import numpy as np

from app.plugins.conformance.sample_images import BLANK_IMAGE
from tests.plugins.conformance.deliberate_faults.spoiling import change_body
from tests.plugins.conformance.engines import BARS, AnswerFault, AnswerFaults, Fault, answer_faults

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


ANSWER_FAULTS: AnswerFaults = {
    "missing corner": ("I01", change_items(lambda item: item.pop("ymax"))),
    "label of numbers": ("I02", change_items(lambda item: item.update(label=3))),
    "score of text": ("I03", change_items(lambda item: item.update(score=str(item["score"])))),
    "score of text, classes": ("I03", change_items(lambda item: item.update(score=str(item["score"]))), "classifier"),
    "score in per cent": ("I04", change_items(lambda item: item.update(score=item["score"] * 100))),
    "worst first": ("I05", change_lists(lambda found: found.reverse())),
    "a label twice": ("I07", change_lists(repeat_first_item), "classifier"),
    "answer that is a list": ("I08", change_items(lambda item: item.update(answer=[item["answer"]])), "vlm"),
    "prompts not returned": ("I09", change_items(lambda item: item.update(prompt="?")), "vlm"),
    "no JPEG": ("I11", reject_images(lambda image: image.startswith(_JPEG))),
    "no grey": ("I12", reject_images(is_png(8, 0))),
    "no alpha": ("I13", reject_images(is_png(8, 6))),
    "no sixteen bits": ("I14", reject_images(is_png(16, 2))),
    "plain image is an error": ("I16", reject_images(lambda image: image == BLANK_IMAGE.data)),
    "corners of text": ("P01", change_items(lambda item: item.update(xmin=str(item["xmin"])))),
    "normalised boxes": ("P02", change_sized_items(lambda item, w, h: scale(item, 1 / w, 1 / h))),
    "boxes of the model's own frame": ("P03", change_sized_items(lambda item, w, h: scale(item, 320 / w, 320 / h))),
    "left and right swapped": ("P04", change_items(lambda item: item.update(xmin=item["xmax"], xmax=item["xmin"]))),
    "boxes outside": (
        "P05",
        change_sized_items(lambda item, w, _: item.update(xmin=item["xmin"] + w, xmax=item["xmax"] + w)),
    ),
    "oriented boxes of text": ("P06", change_items(lambda item: item.update(r=str(item["r"]))), "oriented-detector"),
    "oriented boxes in pixels": (
        "P07",
        change_sized_items(lambda item, w, h: scale(item, w, h, "cx cy w h")),
        "oriented-detector",
    ),
    "degrees": ("P08", change_items(lambda item: item.update(r=math.degrees(item["r"]))), "oriented-detector"),
    "counter-clockwise rotation": ("P09", change_items(lambda item: item.update(r=-item["r"])), BARS),
    "negative sides": ("P10", change_items(lambda item: item.update(w=-item["w"])), "oriented-detector"),
    "flat contour": ("P11", change_items(lambda item: item.update(contour=item["contour"][0])), "segmenter"),
    "points of lists": (
        "P11",
        change_items(lambda item: item.update(contour=[[[p["x"], p["y"]] for p in c] for c in item["contour"]])),
        "segmenter",
    ),
    "normalised contours": (
        "P12",
        change_sized_items(lambda item, w, h: scale_points(item, 1 / w, 1 / h)),
        "segmenter",
    ),
    "contours of the model's own frame": (
        "P13",
        change_sized_items(lambda item, w, h: scale_points(item, 320 / w, 320 / h)),
        "segmenter",
    ),
    "contours outside": ("P14", change_items(move_points), "segmenter"),
}


def faults(protocol: str, prefix: str) -> dict[str, Fault]:
    """Return all faults for a protocol, whose checks have ids that start with `prefix`."""
    unstable: AnswerFaults = {"unstable scores": ("I15", unstable_scores())}
    all_faults = answer_faults(protocol, "detector", {**ANSWER_FAULTS, **unstable})
    for name, check, change in (("threshold ignored", "I06", without_threshold), ("EXIF ignored", "I10", without_exif)):
        request_fault = change_body(change)
        all_faults[name] = Fault(protocol=protocol, model="detector", check=check, change_request=request_fault)
    return {name: replace(fault, check=f"{prefix}-{fault.check}") for name, fault in all_faults.items()}
