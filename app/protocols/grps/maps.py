"""`gmap`: images by name, parameters and metadata beside them, and the answers by the images' names.

GRPS leaves the meaning of a map to whoever writes the model. Here `s_b` holds encoded images, `s_s` texts and the
numeric maps numbers, each under the name of the parameter that it is.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.protocols.bytes_elements import BinaryElement
from app.protocols.grps.messages import entry_path
from app.protocols.json_body import read_json
from metadata.entry import PARAMETER as METADATA
from tasks.exchange.error import brief, invalid
from tasks.exchange.tensor import BytesTensor

__all__ = ("MapRequest", "echo_metadata", "read_map")

_PARAMETERS = "parameters"
_OF_AN_IMAGE = (f".{METADATA}", f".{_PARAMETERS}")
_PROMPTS = frozenset({"prompt", "question", "text"})
_NUMBERS = ("s_i32", "s_i64", "s_f", "s_d")


class MapRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a map says.

    Attributes:
        inputs: the images, sorted by name: a map has no order.
        parameters: for all of them.
        places: where each of those stands.
        echoes: for each image with metadata, the name in `s_s` under which that goes back, which is that it came under.
    """

    inputs: tuple[BytesTensor, ...]
    parameters: Mapping[str, object]
    places: Mapping[str, str]
    echoes: Mapping[str, str]


def read_map(gmap: Any) -> MapRequest:
    """Read a `GenericMapData`.

    Raises:
        InferenceError: INVALID_REQUEST naming the entry.
    """
    names = sorted(gmap.s_b)
    if not names:
        raise invalid("Expected an encoded image at least, got none", "gmap.s_b")
    for name in names:
        if name == METADATA or name.endswith(_OF_AN_IMAGE):
            raise invalid(
                "Expected the name of an image, got one that is kept for what comes beside it", entry_path("s_b", name)
            )
    texts = dict(gmap.s_s)
    own, echoes = _of_images(names, texts)
    parameters, places = _named(gmap, texts)
    return MapRequest(
        inputs=tuple(
            BytesTensor(name=name, shape=(1,), elements=[BinaryElement(gmap.s_b[name])], parameters=own[name])
            for name in names
        ),
        parameters=parameters,
        places=places,
        echoes=echoes,
    )


def echo_metadata(message: Any, name: str, parameters: Mapping[str, object], echoes: Mapping[str, str]) -> None:
    """Write the metadata among the `parameters` of the answer to image `name` into the map of `message`."""
    if METADATA in parameters:
        message.gmap.s_s[echoes.get(name, f"{name}.{METADATA}")] = str(parameters[METADATA])


def _of_images(names: list[str], texts: dict[str, str]) -> tuple[Mapping[str, Mapping[str, object]], Mapping[str, str]]:
    """Take metadata and single images' parameters out of `texts`: the images' own parameters, and their echoes."""
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
        raise invalid("Expected an image without metadata of its own, got none", entry_path("s_s", METADATA))
    for key in texts:
        if key.endswith(_OF_AN_IMAGE):
            raise invalid(
                f"Expected the name of an image in s_b before the dot, got {brief(key)}", entry_path("s_s", key)
            )
    return own, echoes


def _named(gmap: Any, texts: dict[str, str]) -> tuple[Mapping[str, object], Mapping[str, str]]:
    """The parameters of all images, and where each stands; those with an entry of their own come first."""
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
    found = read_json(text.encode(), dict[str, object], path)
    if METADATA in found:
        raise invalid("Expected metadata in an entry of s_s, where it goes back as it came", f"{path}.{METADATA}")
    return found
