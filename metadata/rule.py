"""Rules that add parameters to outputs."""

from collections.abc import Mapping
from typing import Protocol

from metadata.entry import METADATA_PARAMETER

__all__ = ("RULES", "MetadataRule", "annotate")


_INPUT_SUFFIX = f"].{METADATA_PARAMETER}"


class MetadataRule(Protocol):
    """Add parameters to an output. Called for every output, in the order of `RULES`."""

    def __call__(self, parameters: Mapping[str, object], /) -> Mapping[str, object]:
        """Return output parameters for an input with `parameters`."""
        ...


def echo_metadata(parameters: Mapping[str, object], /) -> Mapping[str, object]:
    """Return the client's metadata unchanged and unread, because the platform matches and stores it.

    An output that answers several inputs returns the metadata of each as ``inputs[<index>].metadata``.
    """
    return {
        name: value for name, value in parameters.items() if name == METADATA_PARAMETER or name.endswith(_INPUT_SUFFIX)
    }


RULES: tuple[MetadataRule, ...] = (echo_metadata,)


def annotate(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Return the parameters of the output for an input with `parameters`."""
    annotated: dict[str, object] = {}
    for rule in RULES:
        annotated.update(rule(parameters))
    return annotated
