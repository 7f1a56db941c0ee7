"""The JSON shapes of KServe's V1 protocol, and of CloudEvents around them (JSON event format 1.0.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = (
    "WireAnswer",
    "WireEvent",
    "WireEventAnswer",
    "WireExplainedAnswer",
    "WireExplanation",
    "WireModelReady",
    "WireModels",
    "WireRequest",
    "WireSaliency",
)


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body.

    Attributes:
        instances: what the model is asked about, one answer each.
        inputs: the same under its other name.
        parameters: the defaults of each instance's own.
    """

    instances: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    inputs: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, msgspec.Raw] | None = None


class WireEvent(WireRequest, frozen=True, kw_only=True):
    """A CloudEvent in structured mode, or a plain request: which of the two is known when its names are."""

    specversion: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    source: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    time: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class WireEventAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The CloudEvent that answers one in structured mode."""

    specversion: str
    id: str
    source: str
    type: str
    time: str
    data: msgspec.Raw


class WireAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body.

    Attributes:
        predictions: one for each instance, in order.
        parameters: the metadata that came with the request, where it came: a list beside the instances, or one object.
    """

    predictions: Sequence[Any]
    parameters: Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireSaliency(msgspec.Struct, frozen=True, kw_only=True):
    """How much each pixel of the upright original image counts, in one of two forms.

    Attributes:
        shape: height and width.
        data: rows of numbers, 0..1.
        png: base64 of an eight-bit grey image, 255 for 1.
    """

    shape: Sequence[int]
    data: Sequence[Sequence[float]] | msgspec.UnsetType = msgspec.UNSET
    png: str | msgspec.UnsetType = msgspec.UNSET


class WireExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why the model found one thing.

    Attributes:
        label: what it found.
        score: how sure it was, 0..1.
        index: which of the instance's predictions that is; left out when it is none of them.
        saliency: where in the image the reason lies.
        method: how it was found.
        samples: masked copies of the image that the model was shown.
        seed: of the masks; the same one gives the same explanation.
    """

    label: str
    score: float
    index: int | msgspec.UnsetType = msgspec.UNSET
    saliency: WireSaliency
    method: str
    samples: int
    seed: int


class WireExplainedAnswer(WireAnswer, frozen=True, kw_only=True):
    """The body of an explanation's response: `explanations[i]` explains `predictions[i]`."""

    explanations: Sequence[Sequence[WireExplanation]]


class WireModels(msgspec.Struct, frozen=True):
    """The names of the models."""

    models: Sequence[str]


class WireModelReady(msgspec.Struct, frozen=True):
    """Whether one model can answer; it is always true, because a model that cannot is an error."""

    name: str
    ready: bool
