"""What the page knows of the server: its models, what each takes and gives, and where else it listens."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.engine.description import Fact
from app.engine.registry import Registration, Registry
from app.server.page.samples import Sample, samples
from tasks.task import TaskType

__all__ = ("Catalogue", "Entry", "TensorShape", "describe_models", "make_catalogue")

# docs/explanations.md
_EXPLAINED = frozenset(
    {
        TaskType.IMAGE_CLASSIFICATION,
        TaskType.OBJECT_DETECTION,
        TaskType.ORIENTED_OBJECT_DETECTION,
        TaskType.IMAGE_SEGMENTATION,
    }
)


class TensorShape(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a model takes or gives. A size of -1 is any."""

    name: str
    datatype: str
    shape: Sequence[int]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one model.

    Attributes:
        name: the model's.
        version: as text.
        latest: whether it answers when no version is asked for.
        state: a `ModelState`.
        reason: why it cannot answer, empty when it can.
        chariot_id: what Chariot's path calls the model, after ``m-``.
        default: whether the bare ``/infer`` means it.
        task_type: empty while it is not loaded, as all that follows.
        platform: the runtime's name for the model's format.
        layout: the name of its output layout.
        labels: class names by class number.
        streams: whether its answers are texts, told while they are made.
        explains: whether its answers can be explained.
        inputs: what a protocol of tensors is told that it takes.
        outputs: the tensors into which its predictions are stacked.
        facts: what was understood of it, and from where.
        parameters: JSON Schema of each, by name; the default is the model's own where its settings give one.
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
    streams: bool = False
    explains: bool = False
    inputs: Sequence[TensorShape] = ()
    outputs: Sequence[TensorShape] = ()
    facts: Sequence[Fact] = ()
    parameters: Mapping[str, Any] = {}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Everything.

    Attributes:
        version: of the server.
        chariot_protocol: which of Chariot's protocols answers on its paths.
        ports: of what listens beside the main port, by name; None for what does not.
        samples: pictures to try a model with.
        models: every version of every model, by name, the latest version first.
        asks: whether callers have to show a key.
    """

    version: str
    asks: bool
    chariot_protocol: str
    ports: Mapping[str, int | None]
    samples: Sequence[Sample]
    models: Sequence[Entry]


def make_catalogue(
    registry: Registry, chariot_protocol: str, ports: Mapping[str, int | None], *, asks: bool = False
) -> Catalogue:
    """What is known now."""
    return Catalogue(
        version=__version__,
        asks=asks,
        chariot_protocol=chariot_protocol,
        ports=ports,
        samples=samples(),
        models=describe_models(registry),
    )


def describe_models(registry: Registry) -> Sequence[Entry]:
    """Every version of every model, by name, the latest version first."""
    names = dict.fromkeys(each.source.name for each in registry.registrations)
    return [entry for name in names for entry in _entries(registry.versions(name))]


def _entries(versions: Sequence[Registration]) -> Sequence[Entry]:
    answering = next((each for each in versions if each.servable is not None), versions[0] if versions else None)
    return [_entry(each, latest=each is answering) for each in versions]


def _entry(registration: Registration, *, latest: bool) -> Entry:
    source, servable = registration.source, registration.servable
    entry = Entry(
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
    return msgspec.structs.replace(
        entry,
        task_type=description.task_type,
        platform=description.platform,
        layout=description.layout,
        labels=description.labels,
        streams=servable.streams,
        explains=description.task_type in _EXPLAINED,
        inputs=_shapes(servable.inputs),
        outputs=_shapes(servable.outputs),
        facts=description.facts,
        parameters=_parameters(servable.parameters_type, source.settings.parameters),
    )


def _shapes(specs: Sequence[Any]) -> Sequence[TensorShape]:
    return [TensorShape(name=each.name, datatype=each.datatype, shape=each.shape) for each in specs]


def _parameters(kind: type[msgspec.Struct], defaults: Mapping[str, object]) -> Mapping[str, Any]:
    """The JSON Schema of every field of `kind`, with `defaults` over its own."""
    (_,), components = msgspec.json.schema_components([kind])
    schema = components[kind.__name__]
    return {
        name: {**field, "default": defaults[name]} if name in defaults else field
        for name, field in schema["properties"].items()
    }
