"""Encode streamed text as messages of each kind of data."""

from collections.abc import Mapping
from typing import Any

from app.engine.streaming import Piece
from app.protocols.grps.maps import echo_metadata
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.tensors import FLAT_FIELDS

__all__ = ("PieceWriter",)


class PieceWriter:
    """Encodes the chunks of one stream, in order.

    Args:
        kind: kind of data in the request, also used for the messages; `str_data` for a request with `bin_data`.
        echoes: for each image with metadata, the name in `s_s` that the metadata is returned under.
    """

    def __init__(self, kind: str, echoes: Mapping[str, str]) -> None:
        self._kind = kind
        self._echoes = echoes
        self._last: Piece | None = None
        self._has_text = False
        self._image = -1

    def message(self, chunk: Piece) -> Any:
        """Return the message for a chunk, without its status; None if it adds nothing.

        In plain text, a line break separates the answers to two prompts. Maps and tensors carry the chunk's prompt and
        whether its answer ends. Tensors also carry the index of the image; in maps, its name is the key.
        """
        last, self._last = self._last, chunk
        # Names may be missing or repeated, but the prompts of an image always arrive in order.
        new_image = last is None or (last.final and chunk.prompt <= last.prompt)
        self._image += new_image
        match self._kind:
            case "gmap":
                return self._map(chunk, new_image)
            case "gtensors":
                return self._tensors(chunk)
            case _:
                text = chunk.text if last is None or not last.final else f"\n{chunk.text}"
                return self._text(text, chunk.final)

    def _text(self, text: str, final: bool) -> Any:
        if not text and (self._has_text or not final):
            return None
        self._has_text = True
        return GrpsMessage(str_data=text)

    def _map(self, chunk: Piece, new_image: bool) -> Any:
        message = GrpsMessage()
        message.gmap.s_s[chunk.input] = chunk.text
        message.gmap.s_i32["prompt"] = chunk.prompt
        message.gmap.s_i32["final"] = int(chunk.final)
        if new_image:
            echo_metadata(message, chunk.input, chunk.parameters, self._echoes)
        return message

    def _tensors(self, chunk: Piece) -> Any:
        message = GrpsMessage()
        for name, field, value in (
            ("image", "flat_int32", self._image),
            ("prompt", "flat_int32", chunk.prompt),
            ("final", "flat_uint8", int(chunk.final)),
            ("text", "flat_string", chunk.text),
        ):
            message.gtensors.tensors.add(name=name, dtype=FLAT_FIELDS[field].number, shape=[1], **{field: [value]})
        return message
