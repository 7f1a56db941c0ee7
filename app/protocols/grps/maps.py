"""`gmap`: images or texts by name, parameters and metadata beside them, and the answers by the same names.

GRPS leaves the meaning of a map to whoever writes the model. Here `s_b` holds encoded images. `s_s` holds texts and the
numeric maps numbers, each under the name of the parameter that it is; for a task of text, every other text of `s_s` is
one to be read.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from app.protocols.bytes_elements import BinaryElement, StringElement
from app.protocols.grps.messages import entry_path
from app.protocols.json_body import read_json
from metadata.entry import PARAMETER as METADATA
from tasks.exchange.error import brief, invalid
from tasks.exchange.limits import beyond
from tasks.exchange.tensor import BytesTensor, Element

__all__ = ("MapRequest", "echo_metadata", "read_map")

_PARAMETERS = "parameters"
_LONGEST_PARAMETERS = 4 * 1024 * 1024
_SIMILARITY = "similarity"
_OF_AN_INPUT = (f".{METADATA}", f".{_PARAMETERS}")
_PROMPTS = frozenset({"prompt", "question", "text"})
_NUMBERS = ("s_i32", "s_i64", "s_f", "s_d")


class MapRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a map says.

    Attributes:
        inputs: the images or texts, sorted by name: a map has no order.
        paths: where each of those stands.
        parameters: for all of them.
        places: where each of those stands.
        echoes: for each input with metadata, the name in `s_s` under which that goes back, which is that it came under.
    """

    inputs: tuple[BytesTensor, ...]
    paths: tuple[str, ...]
    parameters: Mapping[str, object]
    places: Mapping[str, str]
    echoes: Mapping[str, str]


def read_map(gmap: Any, arguments: Collection[str] | None = None) -> MapRequest:
    """Read a `GenericMapData`.

    Args:
        gmap: what came.
        arguments: the names of the parameters, for a task of text; None for one about images, whose texts in `s_s` are
            parameters whatever they are called.

    Raises:
        InferenceError: INVALID_REQUEST naming the entry.
    """
    texts = dict(gmap.s_s)
    elements = _elements(gmap, texts, arguments)
    names = sorted(elements)
    own, echoes = _of_inputs(names, texts)
    parameters, places = _named(gmap, texts)
    return MapRequest(
        inputs=tuple(
            BytesTensor(name=name, shape=(1,), elements=[elements[name][1]], parameters=own[name]) for name in names
        ),
        paths=tuple(entry_path(elements[name][0], name) for name in names),
        parameters=parameters,
        places=places,
        echoes=echoes,
    )


def echo_metadata(message: Any, name: str, parameters: Mapping[str, object], echoes: Mapping[str, str]) -> None:
    """Write the metadata among the `parameters` of the answer to input `name` into the map of `message`.

    A similarity, of a server that watches for drift, goes beside it as ``<name>.similarity`` in `s_f`.
    """
    if METADATA in parameters:
        message.gmap.s_s[echoes.get(name, f"{name}.{METADATA}")] = str(parameters[METADATA])
    similarity = parameters.get(_SIMILARITY)
    if isinstance(similarity, float):
        message.gmap.s_f[f"{name}.{_SIMILARITY}"] = similarity


def _elements(gmap: Any, texts: dict[str, str], arguments: Collection[str] | None) -> Mapping[str, tuple[str, Element]]:
    """The field and the element of each input; those that are texts are taken out of `texts`."""
    found: dict[str, tuple[str, Element]] = {name: ("s_b", BinaryElement(data)) for name, data in gmap.s_b.items()}
    for name in found:
        if name == METADATA or name.endswith(_OF_AN_INPUT):
            raise invalid(
                "Expected the name of an input, got one that is kept for what comes beside it", entry_path("s_b", name)
            )
    if arguments is None:
        if not found:
            raise invalid("Expected an encoded image at least, got none", "gmap.s_b")
        return found
    kept = {METADATA, _PARAMETERS, *arguments}
    for name in [each for each in texts if each not in kept and not each.endswith(_OF_AN_INPUT)]:
        if name in found:
            raise invalid("Expected a text once, got it in s_b as well", entry_path("s_s", name))
        found[name] = ("s_s", StringElement(texts.pop(name)))
    if not found:
        raise invalid("Expected a text at least, got none", "gmap.s_s")
    return found


def _of_inputs(names: list[str], texts: dict[str, str]) -> tuple[Mapping[str, Mapping[str, object]], Mapping[str, str]]:
    """Take metadata and single inputs' parameters out of `texts`: the inputs' own parameters, and their echoes."""
    shared = texts.pop(METADATA, None)
    own: dict[str, Mapping[str, object]] = {}
    echoes: dict[str, str] = {}
    for name in names:
        key = f"{name}.{_PARAMETERS}"
        parameters = _object(texts.pop(key, "{}"), entry_path("s_s", key))
        key = f"{name}.{METADATA}"
        found = texts.pop(key, None)
        metadata = found if found is not None else shared
        if metadata is not None:
            echoes[name] = key if found is not None else METADATA
            parameters = {**parameters, METADATA: metadata}
        own[name] = parameters
    if shared is not None and METADATA not in echoes.values():
        raise invalid("Expected an input without metadata of its own, got none", entry_path("s_s", METADATA))
    for key in texts:
        if key.endswith(_OF_AN_INPUT):
            message = f"Expected the name of an image or a text before the dot, got {brief(key)}"
            raise invalid(message, entry_path("s_s", key))
    return own, echoes


def _named(gmap: Any, texts: dict[str, str]) -> tuple[Mapping[str, object], Mapping[str, str]]:
    """The parameters of all inputs, and where each stands; those with an entry of their own come first."""
    where = entry_path("s_s", _PARAMETERS)
    written = _object(texts.pop(_PARAMETERS, "{}"), where)
    named: dict[str, object] = {}
    places: dict[str, str] = {}
    entries = [("s_s", key, value) for key, value in texts.items()]
    entries += [(field, key, value) for field in _NUMBERS for key, value in getattr(gmap, field).items()]
    for field, key, value in entries:
        name = "prompts" if field == "s_s" and key in _PROMPTS else key
        if name in named:
            raise invalid(f"Expected one value for {brief(name)}, got another one", entry_path(field, key))
        named[name] = [value] if name != key else value
        places[name] = entry_path(field, key)
    return {**written, **named}, {**{name: f"{where}.{name}" for name in written}, **places}


def _object(text: str, path: str) -> Mapping[str, object]:
    """A text that holds a JSON object of parameters."""
    if len(text) > _LONGEST_PARAMETERS:
        raise beyond(_LONGEST_PARAMETERS, "characters of parameters", len(text), path)
    found = read_json(text.encode(), dict[str, object], path)
    if METADATA in found:
        raise invalid("Expected metadata in an entry of s_s, where it goes back as it came", f"{path}.{METADATA}")
    return found
