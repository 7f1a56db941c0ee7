"""Send images to an engine and read the items leniently, so that each item can be checked on its own."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from app.conformance.clause import InapplicableError, UntestedError
from app.conformance.pictures import OWN_PICTURES, Picture
from app.conformance.probe import Exchange, Probe

__all__ = ("FIELDS", "PROMPTS", "Item", "Look", "Looking", "is_number")

Item = dict[str, Any]

FIELDS: Mapping[str, Sequence[str]] = {
    "IMAGE_CLASSIFICATION": ("label", "score"),
    "OBJECT_DETECTION": ("label", "score", "xmin", "ymin", "xmax", "ymax"),
    "ORIENTED_OBJECT_DETECTION": ("label", "score", "cx", "cy", "w", "h", "r"),
    "IMAGE_SEGMENTATION": ("label", "score", "contour"),
    "IMAGE_TEXT_TO_TEXT": ("prompt", "answer"),
}
"""The fields of an item, by task type (Chariot, "Inference Protocols", Responses)."""

PROMPTS = ("What is in the picture?", "Which colours are there?")
_LOW_THRESHOLD = 0.05
_MAX_NUMBER = 1e300


@dataclass(frozen=True, slots=True)
class Look:
    """An image and the raw items that the engine found in it."""

    picture: Picture
    found: Sequence[object]

    @property
    def items(self) -> Sequence[Item]:
        """Return the items that are objects."""
        return [cast("Item", item) for item in self.found if isinstance(item, dict)]


@dataclass(frozen=True, slots=True)
class Looking:
    """The way that one protocol sends an image.

    Args:
        ask: sends the image with parameters.
        read: returns the items of a response with status 200, or raises `UntestedError` if it has none.
    """

    ask: Callable[[Probe, Picture, Mapping[str, object]], Exchange]
    read: Callable[[Exchange], Sequence[object]]

    def look(self, probe: Probe, picture: Picture, parameters: Mapping[str, object] | None = None) -> Look:
        """Send one image with the needed parameters and `parameters`.

        Raises:
            UntestedError: the status is not 200, or the items cannot be read.
        """
        exchange = self.ask(probe, picture, {**self.needed(probe), **(parameters or {})})
        if not exchange.ok:
            raise UntestedError(f"{picture.name} was answered with status {exchange.status}")
        return Look(picture, self.read(exchange))

    def needed(self, probe: Probe) -> Mapping[str, object]:
        """Return the parameters that the engine requires: none, or prompts."""
        if probe.target.task_type == "IMAGE_TEXT_TO_TEXT":
            return {"prompts": PROMPTS}
        prompted = {"prompts": PROMPTS}
        if self.ask(probe, OWN_PICTURES[0], {}).ok or not self.ask(probe, OWN_PICTURES[0], prompted).ok:
            return {}
        return prompted

    def looks(self, probe: Probe) -> Sequence[Look]:
        """Return all images with items, at the engine's default threshold, or else at a low one.

        Raises:
            UntestedError: the model finds nothing in any image.
        """
        pictures = (*probe.target.pictures, *OWN_PICTURES)
        for parameters in ({}, {"score_threshold": _LOW_THRESHOLD}):
            made: list[Look] = []
            for picture in pictures:
                try:
                    made.append(self.look(probe, picture, parameters))
                except UntestedError:
                    continue
            if found := [look for look in made if look.found]:
                return found
        raise UntestedError("The model finds nothing in any image; give others with --image")

    def task_type(self, probe: Probe) -> str | None:
        """Return the given task type, or the one that the fields of the items suggest, or None.

        Raises:
            UntestedError: there are no items.
        """
        if probe.target.task_type:
            return probe.target.task_type
        names = {name for look in self.looks(probe) for item in look.items for name in item}
        for task_type, typical, least in (
            ("OBJECT_DETECTION", {"xmin", "ymin", "xmax", "ymax"}, 2),
            ("ORIENTED_OBJECT_DETECTION", {"cx", "cy", "w", "h", "r"}, 2),
            ("IMAGE_SEGMENTATION", {"contour"}, 1),
            ("IMAGE_TEXT_TO_TEXT", {"prompt", "answer"}, 1),
            ("IMAGE_CLASSIFICATION", {"label", "score"}, 1),
        ):
            if len(names & typical) >= least:
                return task_type
        return None

    def items(self, probe: Probe, *task_types: str) -> Sequence[tuple[Picture, Item]]:
        """Return every item that is an object, with its image, if the engine's task type is one of `task_types`.

        Raises:
            InapplicableError: the task type is another one.
            UntestedError: the task type is not known, or no item is an object.
        """
        found = self.task_type(probe)
        if found not in task_types:
            if found is None:
                raise UntestedError("The task type was not recognised; give it with --task-type")
            raise InapplicableError(f"About {', '.join(task_types)}; this is {found}")
        items = [(look.picture, item) for look in self.looks(probe) for item in look.items]
        if not items:
            raise UntestedError("No item is an object")
        return items


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number of usable size, and not a boolean."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _MAX_NUMBER and not math.isnan(value)
