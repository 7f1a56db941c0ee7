"""The types of bodies for OpenAPI. Requests are decoded by `document` and `values` instead."""

from typing import Any

import msgspec


class WirePredict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tensors in rows (`instances`) or in columns (`inputs`)."""

    signature_name: str = "serving_default"
    instances: list[Any] | None = None
    inputs: Any = None


class WirePredictions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`predictions` for rows, `outputs` for columns."""

    predictions: list[Any] | None = None
    outputs: Any = None


class WireExamples(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Examples, each an object of features, and features that all examples share."""

    examples: list[dict[str, Any]]
    context: dict[str, Any] = {}
    signature_name: str = ""


class WireResults(msgspec.Struct, frozen=True, kw_only=True):
    """For each example, pairs of label and score, or one number."""

    results: list[Any]


class WireStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a version; `error_code` is OK without an error."""

    error_code: str
    error_message: str


class WireVersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one version: LOADING, AVAILABLE, UNLOADING or END."""

    version: str
    state: str
    status: WireStatus


class WireModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Every version of a model, the latest first."""

    model_version_status: list[WireVersionStatus]


class WireModelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved version, and its signatures."""

    model_spec: dict[str, str]
    metadata: dict[str, Any]
