"""What may be added to an output's parameters, and the list of all such rules."""

from collections.abc import Mapping
from typing import Protocol

from metadata.entry import PARAMETER

__all__ = ("RULES", "MetadataRule", "annotate")


class MetadataRule(Protocol):
    """Says something about an answer. Called for every output, in the order of `RULES`."""

    def __call__(self, parameters: Mapping[str, object], /) -> Mapping[str, object]:
        """The output's parameters that follow from its input's `parameters`."""
        ...


def echo_metadata(parameters: Mapping[str, object], /) -> Mapping[str, object]:
    """Return the sender's metadata as it came, without reading it: the platform matches and stores it unchanged."""
    return {PARAMETER: parameters[PARAMETER]} if PARAMETER in parameters else {}


RULES: tuple[MetadataRule, ...] = (echo_metadata,)


def annotate(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """The parameters of the output that answers an input with `parameters`."""
    annotated: dict[str, object] = {}
    for rule in RULES:
        annotated.update(rule(parameters))
    return annotated
