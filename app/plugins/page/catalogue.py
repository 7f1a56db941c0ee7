"""Describe the server for the page: its models with their inputs and outputs, and its other ports."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.core.engine.models.registry import Registration, Registry
from app.core.engine.models.servable import Servable
from app.core.observers.metrics import ModelUsage
from app.plugins.authoring.drawing.palette import VIVID, Colour, colours_of
from app.plugins.page.page_files import PageSample
from metadata.model import Fact
from tasks.inference.tensor import TensorSpec


def _hex(colour: Colour) -> str:
    return "#" + bytes(colour).hex()


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one model. The fields from `task_type` on are empty while it is not loaded.

    Attributes:
        latest: whether it answers requests without a version.
        chariot_id: id of the model in Chariot's path, after ``m-``.
        default: whether the bare ``/infer`` uses it.
        labels: class names by class number.
        colours: of the labels, as ``#rrggbb``.
        inputs: input tensors, as tensor protocols report them.
        outputs: output tensors, into which its predictions are stacked.
        memory: bytes of memory that it uses, as `Servable.resident_bytes`; None if unknown.
        parameters: JSON Schema of each parameter by name; the default is the model's own if its settings define one.
    """

    name: str
    version: str
    latest: bool
    state: str
    reason: str
    chariot_id: str
    default: bool
    task_type: str = ""
    platform: str = ""
    layout: str = ""
    labels: Sequence[str] = ()
    colours: Sequence[str] = ()
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    memory: int | None = None
    facts: Sequence[Fact] = ()
    parameters: Mapping[str, Any] = {}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The models and ports of the server.

    Attributes:
        admin: whether the client may load and unload models.
        palette: the colours of labels that no model declares, chosen by CRC-32.
        ports: other ports by the name of their protocol, without disabled protocols.
        memory: resident memory of the server in bytes.
        usage: by the name of each model that had a request.
        models: every version of every model, by name, latest version first.
    """

    version: str = __version__
    requires_credentials: bool
    admin: bool
    palette: Sequence[str] = tuple(map(_hex, VIVID))
    chariot_protocol: str
    ports: Mapping[str, int]
    samples: Sequence[PageSample]
    memory: float
    usage: Mapping[str, ModelUsage]
    models: Sequence[ModelEntry]


def describe_models(registry: Registry) -> Sequence[ModelEntry]:
    """Return every version of every model, by name, latest version first."""
    names = dict.fromkeys(registration.source.name for registration in registry.registrations)
    entries: list[ModelEntry] = []
    for versions in map(registry.versions, names):
        ready_versions = [version for version in versions if version.servable is not None]
        default_version = next(iter([*ready_versions, *versions]), None)
        entries += [_entry(version, latest=version is default_version) for version in versions]
    return entries


def _entry(registration: Registration, *, latest: bool) -> ModelEntry:
    source, servable = registration.source, registration.servable
    entry = ModelEntry(
        name=source.name,
        version=source.version,
        latest=latest,
        state=registration.state,
        reason=registration.reason,
        chariot_id=registration.chariot_id,
        default=source.settings.default,
    )
    if servable is None:
        return entry
    description = servable.description
    colours = colours_of(tuple(description.labels))
    shared = ("platform", "layout", "labels", "facts")
    return msgspec.structs.replace(
        entry,
        task_type=str(description.task_type),
        **{name: getattr(description, name) for name in shared},
        colours=[_hex(colours[label]) for label in description.labels],
        inputs=servable.inputs,
        outputs=servable.outputs,
        memory=servable.resident_bytes,
        parameters=_parameters(servable),
    )


def _parameters(servable: Servable) -> Mapping[str, Any]:
    """Return the JSON Schema of every parameter that the model accepts, with the model's own defaults."""
    _, components = msgspec.json.schema_components(servable.parameter_types)
    properties = {
        name: field
        for kind in servable.parameter_types
        for name, field in components[kind.__name__]["properties"].items()
    }
    return {
        name: {**properties[name], "default": servable.defaults[name]}
        if name in servable.defaults
        else properties[name]
        for name in servable.parameter_names
        if name != "candidate_labels" or servable.description.open_vocabulary
    }
