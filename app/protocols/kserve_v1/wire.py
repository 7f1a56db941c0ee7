"""The JSON types of KServe's V1 protocol, and of CloudEvents around them (JSON event format 1.0.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.protocols.openai_models import WireModel


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


class WireEvent(WireRequest, frozen=True, kw_only=True):
    """A CloudEvent in structured mode, or a plain request; the members that are present decide."""

    specversion: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    source: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    time: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class WireEventAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The CloudEvent of a response, in structured mode."""

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
        parameters: the metadata of the request, if any: a list parallel to the instances, or one object.
    """

    predictions: Sequence[Any]
    parameters: Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireSaliency(msgspec.Struct, frozen=True, kw_only=True):
    """The importance of each pixel of the upright original image, in one of two forms.

    Attributes:
        shape: height and width.
        data: rows of numbers, 0..1.
        png: base64 of an 8-bit grey PNG, 255 for 1.
    """

    shape: Sequence[int]
    data: Sequence[Sequence[float]] | msgspec.UnsetType = msgspec.UNSET
    png: str | msgspec.UnsetType = msgspec.UNSET


class WireExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one prediction.

    Attributes:
        label: the predicted label.
        score: its score, 0..1.
        index: index of the explained prediction in the instance's predictions; missing if it is not among them.
        saliency: the importance of each pixel.
        method: the method of explanation.
        samples: number of masked images that the model was run on.
        seed: seed of the masks; the same seed gives the same explanation.
    """

    label: str
    score: float
    index: int | msgspec.UnsetType = msgspec.UNSET
    saliency: WireSaliency
    method: str
    samples: int
    seed: int


class WireTextExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one prediction for a text.

    Attributes:
        label: the predicted label, or the answer.
        score: its score, 0..1; the log-likelihood of an answer, in nats.
        index: index of the explained prediction in the instance's predictions; missing if it is not among them.
        words: the words of the text, or groups of neighbours.
        spans: start and end of each word in the text, in characters.
        importance_scores: `score` minus the score without the word; null for words for which time ran out.
        method: the method of explanation.
        samples: number of copies of the text that the model was run on.
    """

    label: str
    score: float
    index: int | msgspec.UnsetType = msgspec.UNSET
    words: Sequence[str]
    spans: Sequence[tuple[int, int]]
    importance_scores: Sequence[float]
    method: str
    samples: int


class WireRowExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one row of numbers.

    Attributes:
        importance_scores: the importance of each number, in the shape of the row; an object by name for several inputs.
        label: the label or the index of the explained output; empty for a model with one output.
        score: the output for the row.
        baseline_score: the output for the baseline; the importances add up to `score` - `baseline_score`.
        method: the method of explanation.
        samples: copies of the row that the model was run on.
        seed: seed of the method; the same seed gives the same explanation.
    """

    importance_scores: Any
    label: str
    score: float
    baseline_score: float
    method: str
    samples: int
    seed: int


class WireExplainedAnswer(WireAnswer, frozen=True, kw_only=True):
    """The body of an explanation's response.

    Attributes:
        explanations: `explanations[i]` explains `predictions[i]`. A list of `WireExplanation` for an image, a list of
            `WireTextExplanation` for a text, a `WireRowExplanation` for a row of numbers, and any JSON of a model that
            explains itself.
    """

    explanations: Sequence[Any]


class WireModels(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the models; for OpenAI's clients also the models that answer with text."""

    models: Sequence[str]
    object: str = "list"
    data: Sequence[WireModel] = ()


class WireModelReady(msgspec.Struct, frozen=True):
    """The readiness of a model; `ready` is always true, because a model that is not ready is an error."""

    name: str
    ready: bool
