"""The JSON types of KServe's V1 protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.core.protocols.kserve_v1.model_list import WireModel


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body.

    Attributes:
        instances: the inputs; each gets one prediction.
        inputs: another name for `instances`.
        parameters: defaults for the parameters of the instances.
    """

    instances: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    inputs: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, msgspec.Raw] | None = None


class WireAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body.

    Attributes:
        predictions: one for each instance, in order.
        parameters: the metadata of the request, if any: a list parallel to the instances, or one object.
    """

    predictions: Sequence[Any]
    parameters: Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireModels(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the models; for OpenAI's clients also the models that answer with text."""

    models: Sequence[str]
    object: str = "list"
    data: Sequence[WireModel] = ()
