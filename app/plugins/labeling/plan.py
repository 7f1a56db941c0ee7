"""Match the control tags of a labelling configuration with a model: which it fills, by which names, with what."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.parsers import expat

import msgspec

from app.core.engine.models.registry import Registration
from metadata.model import ModelMetadata
from tasks.inference.error import invalid, quote_value
from tasks.inference.limits import too_large
from tasks.inference.request import read_parameters

_TAGS: Mapping[str, Sequence[str]] = {
    "box": ("RectangleLabels",),
    "oriented": ("RectangleLabels", "PolygonLabels"),
    "contour": ("BrushLabels", "PolygonLabels"),
    "classes": ("Choices",),
    "texts": ("TextArea",),
}
"""The tags that a model can fill, by the geometry of its objects or by what it returns."""

_OWN_OPTIONS = ("skip", "obb", "path", "add_bboxes", "point_size", "point_threshold")
"""Attributes ``model_...`` that are no request parameters; some belong to Label Studio's example for YOLO."""

_MAX_CHARACTERS = 1 << 20
_MULTIPLE_THRESHOLD = 0.5
_POLYGON_EPSILON = 1.0
"""Pixels. The editor of Label Studio is slow with polygons of more than some hundred points."""

_KEYS = re.compile(r"[^.\[\]]+")


class _Region(msgspec.Struct):
    """A region of an annotation, which has its labels in its value, by its type."""

    type: str
    value: dict[str, Any]
    from_name: str = ""


class TagLabel(msgspec.Struct, frozen=True):
    """A label that people can choose."""

    stored: str  # its name in annotations: `alias`, by default `value`
    names: list[str]  # the labels of a model that mean it: `predicted_values`, by default `value` and `alias`


class Control(msgspec.Struct, frozen=True):
    """A control tag, such as ``RectangleLabels``. `image` is the name of the tag of the image that it labels."""

    tag: str
    image: str
    attributes: Mapping[str, str]
    labels: list[TagLabel]


class LabelConfig(msgspec.Struct, frozen=True):
    """A labelling configuration. `images` has the key of each image in a task's data, by the name of its tag."""

    controls: list[Control]
    images: dict[str, str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a model answers the tasks of a project."""

    model_name: str
    # The tags that it fills, each with the names that they have for the labels of the model.
    controls: Sequence[tuple[Control, Mapping[str, str]]]
    keys: Sequence[str]  # the path of the image in a task's data
    parameters: Mapping[str, object]
    # Changes with the model's version, its settings, and what the project chooses. Label Studio does not request
    # the same version for a task again.
    version: str


def make_plan(registration: Registration, config_text: str, path: str) -> Plan:
    """Return how a model that is ready fills the tags of a labelling configuration, which is at `path` of a request.

    Raise INVALID_REQUEST if it can fill none, or if tags disagree about a parameter.
    """
    source, servable = registration.source, registration.ready_servable()
    description = servable.description
    config, task_type = parse_label_config(config_text, path), description.task_type
    tags = _TAGS.get(task_type.geometry or task_type.returns, ())
    if task_type.takes not in ("image", "question") or not tags:
        raise invalid(f"Expected a model that labels images, {source.name!r} has the task {task_type}", path)
    fitting = [
        control
        for control in config.controls
        if control.tag in tags
        and control.image in config.images
        and control.attributes.get("model_skip", "").lower() != "true"
    ]
    # A polygon has no holes.
    brushes = [control for control in fitting if control.tag == "BrushLabels"]
    controls = [(control, _names(control, description)) for control in brushes or fitting]
    controls = [(control, names) for control, names in controls if names or control.tag == "TextArea"]
    if not controls:
        raise invalid(_mismatch(source.name, tags, fitting, description), path)
    images = {control.image for control, _ in controls}
    if len(images) > 1:
        message = f"Expected tags for one image, got them for {', '.join(sorted(images))}"
        raise invalid(f'{message}; add model_skip="true" to the tags of all but one', path)
    parameters = _parameters([control for control, _ in controls], source.settings.parameters, path)
    read_parameters(servable.task.parameters_type, parameters, path=path)
    if description.open_vocabulary:
        parameters["candidate_labels"] = sorted({name for _, names in controls for name in names})
    chosen = [(control.attributes, names) for control, names in controls]
    settings = msgspec.json.encode([description.labels, source.settings.parameters, parameters, chosen], order="sorted")
    return Plan(
        model_name=source.name,
        controls=controls,
        keys=_KEYS.findall(config.images[images.pop()]),
        parameters=parameters,
        version=f"{source.name}:{source.version}-{hashlib.sha256(settings).hexdigest()[:6]}",
    )


def with_labels_of_model(plan: Plan, annotation: Mapping[str, Any]) -> Mapping[str, object]:
    """Return an annotation of a project with the labels of the model instead of the project's.

    Raise INVALID_REQUEST if a label of the project stands for several of the model, or if it has no list of regions.
    """
    meanings: dict[tuple[str, str], list[str]] = {}
    for control, names in plan.controls:
        for name, stored in names.items():
            meanings.setdefault((control.attributes["name"], stored), []).append(name)
    regions: list[object] = []
    try:
        drawn = msgspec.convert(annotation.get("result") or [], list[Any])
    except msgspec.ValidationError as error:
        raise invalid(str(error), "annotation.result") from None
    for region in drawn:
        try:
            labelled = msgspec.convert(region, _Region)
            labels = msgspec.convert(labelled.value.get(labelled.type), list[str])
        except msgspec.ValidationError:
            # Regions of other kinds, such as ratings and taxonomies, have no list of labels.
            regions.append(region)
            continue
        found = [meanings.get((labelled.from_name, label), [label]) for label in labels]
        for label, names in zip(labels, found, strict=True):
            if len(names) > 1:
                raise invalid(f"The label {quote_value(label)} stands for several of the model: {', '.join(names)}")
        value = {**labelled.value, labelled.type: [name for names in found for name in names]}
        regions.append({**region, "value": value})
    return {**annotation, "result": regions}


def _names(control: Control, description: ModelMetadata) -> Mapping[str, str]:
    """Return the names of a tag for the labels of the model; upper and lower case matter only if both exist."""
    wanted = {name: label.stored for label in reversed(control.labels) for name in label.names}
    if description.open_vocabulary or not description.labels:
        return wanted
    by_case = {name.casefold(): stored for name, stored in wanted.items()}
    names = {name: wanted.get(name) or by_case.get(name.casefold()) for name in description.labels}
    return {name: stored for name, stored in names.items() if stored}


def _parameters(controls: Sequence[Control], defaults: Mapping[str, object], path: str) -> dict[str, object]:
    """Return the attributes ``model_<parameter>`` as request parameters, and what labelling needs beside `defaults`."""
    parameters: dict[str, object] = {}
    for attribute, text in [item for control in controls for item in control.attributes.items()]:
        name = attribute.removeprefix("model_")
        if name != attribute and name not in _OWN_OPTIONS:
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                value = text
            if parameters.setdefault(name, value) != value:
                raise invalid(f"Expected one value of {attribute}, got several: each image is inferred once", path)
    for control in controls:
        if control.tag == "PolygonLabels" and "epsilon" not in defaults:
            parameters.setdefault("epsilon", _POLYGON_EPSILON)
        elif control.attributes.get("choice") == "multiple" and "score_threshold" not in defaults:
            parameters.setdefault("score_threshold", _MULTIPLE_THRESHOLD)
    return parameters


def _mismatch(name: str, tags: Sequence[str], fitting: Sequence[Control], description: ModelMetadata) -> str:
    if not fitting:
        return f"Expected a tag {' or '.join(tags)} of an Image, which {name!r} can fill ({description.task_type})"
    labels = sorted({name for control in fitting for label in control.labels for name in label.names})
    if not description.labels:
        return f"Expected labels in the project: {name!r} has none of its own"
    return (
        f"No label of the project ({', '.join(labels) or 'it has none'}) is one of {name!r}: "
        f'{", ".join(description.labels)}. Map them with predicted_values="<label of the model>"'
    )


def parse_label_config(text: str, path: str) -> LabelConfig:
    """Parse a labelling configuration, which is at `path` of a request. It cannot define entities.

    Raise INVALID_REQUEST or TOO_LARGE.
    """
    if len(text) > _MAX_CHARACTERS:
        raise too_large(_MAX_CHARACTERS, "characters", len(text), path)
    config = LabelConfig([], {})
    labels: list[list[TagLabel]] = [[]]  # the labels of each open tag

    def start(tag: str, attributes: dict[str, str]) -> None:
        name, value = attributes.get("name"), attributes.get("value")
        labels.append(labels[-1])
        if name and "toName" in attributes:
            labels[-1] = []
            config.controls.append(Control(tag, attributes["toName"].partition(",")[0], attributes, labels[-1]))
        elif name and value and tag == "Image":
            config.images[name] = value.removeprefix("$")
        elif value and tag in ("Label", "Choice"):
            labels[-1].append(_label(value, attributes))

    def reject_doctype(*_: object) -> None:
        raise invalid("Expected XML without DOCTYPE and entities", path)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: labels.pop()
    parser.StartDoctypeDeclHandler = reject_doctype
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise invalid(f"Expected the XML of a labelling configuration: {error}", path) from None
    return config


def _label(value: str, attributes: Mapping[str, str]) -> TagLabel:
    alias = attributes.get("alias", "")
    predicted = [name.strip() for name in attributes.get("predicted_values", "").split(",")]
    names = [name for name in predicted if name] or [name for name in (value, alias) if name]
    return TagLabel(alias or value, names)
