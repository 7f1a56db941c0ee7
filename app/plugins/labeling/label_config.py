"""Read the labelling configuration of a Label Studio project: its control tags, their labels, and the images."""

from collections.abc import Mapping
from xml.parsers import expat

from msgspec import Struct

from tasks.inference.error import invalid, quote_value
from tasks.inference.limits import too_large

_MAX_CHARACTERS = 1 << 20


class Label(Struct, frozen=True):
    """A label that people can choose."""

    stored: str  # its name in annotations: `alias`, by default `value`
    names: list[str]  # the labels of a model that mean it: `predicted_values`, by default `value` and `alias`
    index: int | None  # `model_index`, the number of a keypoint; None without


class Control(Struct, frozen=True):
    """A control tag, such as ``RectangleLabels``. `image` is the name of the tag of the image that it labels."""

    tag: str
    image: str
    attributes: Mapping[str, str]
    labels: list[Label]

    def option(self, name: str, default: str = "") -> str:
        """Return the attribute ``model_<name>`` in lower case."""
        return self.attributes.get(f"model_{name}", default).lower()

    def number(self, name: str, default: float) -> float:
        """Return the number in the attribute ``model_<name>``.

        Raises:
            InferenceError: INVALID_REQUEST if it is none.
        """
        text = self.option(name, str(default))
        try:
            return float(text)
        except ValueError:
            raise invalid(f"Expected a number in model_{name}, got {quote_value(text)}") from None


class LabelConfig(Struct, frozen=True):
    """A labelling configuration. `images` has the key of each image in a task's data, by the name of its tag."""

    controls: list[Control]
    images: dict[str, str]


def parse_label_config(text: str, path: str) -> LabelConfig:
    """Parse a labelling configuration, which is at `path` of a request. It cannot define entities.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE.
    """
    if len(text) > _MAX_CHARACTERS:
        raise too_large(_MAX_CHARACTERS, "characters", len(text), path)
    config = LabelConfig([], {})
    labels: list[list[Label]] = [[]]  # those of each open tag

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


def _label(value: str, attributes: Mapping[str, str]) -> Label:
    alias, index = attributes.get("alias", ""), attributes.get("model_index", "")
    predicted = [name.strip() for name in attributes.get("predicted_values", "").split(",")]
    names = [name for name in predicted if name] or [name for name in (value, alias) if name]
    return Label(alias or value, names, int(index) if index.isdecimal() else None)
