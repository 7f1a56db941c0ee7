"""Showing an engine pictures, and reading the items it found, as forgivingly as it takes to judge them one by one."""

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
"""The fields of one item, by task type (Chariot, "Inference Protocols", Responses)."""

PROMPTS = ("What is in the picture?", "Which colours are there?")
_LOW_THRESHOLD = 0.05
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Look:
    """A picture, and what the engine found in it, as it was given."""

    picture: Picture
    found: Sequence[object]

    @property
    def items(self) -> Sequence[Item]:
        """Those that are objects."""
        return [cast("Item", each) for each in self.found if isinstance(each, dict)]


@dataclass(frozen=True, slots=True)
class Looking:
    """How one protocol shows a picture.

    Args:
        ask: sends it with parameters.
        read: takes the items out of an answer of status 200; raises `UntestedError` where there is no finding them.
    """

    ask: Callable[[Probe, Picture, Mapping[str, object]], Exchange]
    read: Callable[[Exchange], Sequence[object]]

    def look(self, probe: Probe, picture: Picture, parameters: Mapping[str, object] | None = None) -> Look:
        """Show one picture, with what the engine cannot do without, and `parameters`.

        Raises:
            UntestedError: it does not answer, or there is no reading it.
        """
        exchange = self.ask(probe, picture, {**self.needed(probe), **(parameters or {})})
        if not exchange.ok:
            raise UntestedError(f"{picture.name} is answered with status {exchange.status}")
        return Look(picture, self.read(exchange))

    def needed(self, probe: Probe) -> Mapping[str, object]:
        """The parameters without which the engine does not answer: none, or prompts."""
        if probe.target.task_type == "IMAGE_TEXT_TO_TEXT":
            return {"prompts": PROMPTS}
        prompted = {"prompts": PROMPTS}
        if self.ask(probe, OWN_PICTURES[0], {}).ok or not self.ask(probe, OWN_PICTURES[0], prompted).ok:
            return {}
        return prompted

    def looks(self, probe: Probe) -> Sequence[Look]:
        """All pictures in which anything is found: by the engine's own threshold, or else by a low one.

        Raises:
            UntestedError: nothing is found in any.
        """
        pictures = (*probe.target.pictures, *OWN_PICTURES)
        for parameters in ({}, {"score_threshold": _LOW_THRESHOLD}):
            made: list[Look] = []
            for picture in pictures:
                try:
                    made.append(self.look(probe, picture, parameters))
                except UntestedError:
                    continue
            if found := [each for each in made if each.found]:
                return found
        raise UntestedError("The model finds nothing in any picture; give some of its own with --image")

    def task_type(self, probe: Probe) -> str | None:
        """What was given, or what the fields of the items look like; none where that says nothing.

        Raises:
            UntestedError: there are no items.
        """
        if probe.target.task_type:
            return probe.target.task_type
        names = {name for look in self.looks(probe) for item in look.items for name in item}
        for task_type, telling, least in (
            ("OBJECT_DETECTION", {"xmin", "ymin", "xmax", "ymax"}, 2),
            ("ORIENTED_OBJECT_DETECTION", {"cx", "cy", "w", "h", "r"}, 2),
            ("IMAGE_SEGMENTATION", {"contour"}, 1),
            ("IMAGE_TEXT_TO_TEXT", {"prompt", "answer"}, 1),
            ("IMAGE_CLASSIFICATION", {"label", "score"}, 1),
        ):
            if len(names & telling) >= least:
                return task_type
        return None

    def items(self, probe: Probe, *task_types: str) -> Sequence[tuple[Picture, Item]]:
        """Every item that is an object, with its picture, where the engine's task type is one of `task_types`.

        Raises:
            InapplicableError: it is another one.
            UntestedError: there are none.
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
    """Whether a JSON value is a number that can be reckoned with, and not true or false."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _LARGEST and not math.isnan(value)
