"""Text that is told while it is made, as messages of each kind."""

from collections.abc import Mapping
from typing import Any

from app.engine.streaming import Piece
from app.protocols.grps.maps import echo_metadata
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.tensors import FLAT_FIELDS

__all__ = ("PieceWriter",)


class PieceWriter:
    """Writes the pieces of one stream, in their order.

    Args:
        kind: of the request's data, which the messages take over: text where it was `str_data` or `bin_data`.
        echoes: for each image with metadata, the name in `s_s` under which that goes back.
    """

    def __init__(self, kind: str, echoes: Mapping[str, str]) -> None:
        self._kind = kind
        self._echoes = echoes
        self._last: Piece | None = None
        self._said = False
        self._image = -1

    def message(self, piece: Piece) -> Any:
        """The message of a piece, without its status; None where it has nothing to tell.

        As text, a line break stands between the answers to two prompts. A map, or tensors, tell which prompt a piece
        belongs to and whether the answer to it ends; tensors also tell which image it is about, a map has its name.
        """
        last, self._last = self._last, piece
        # Names may be missing or come twice, but the prompts of an image are always put in their order.
        new_image = last is None or (last.final and piece.prompt <= last.prompt)
        self._image += new_image
        match self._kind:
            case "gmap":
                return self._map(piece, new_image)
            case "gtensors":
                return self._tensors(piece)
            case _:
                text = piece.text if last is None or not last.final else f"\n{piece.text}"
                return self._text(text, piece.final)

    def _text(self, text: str, final: bool) -> Any:
        if not text and (self._said or not final):
            return None
        self._said = True
        return GrpsMessage(str_data=text)

    def _map(self, piece: Piece, new_image: bool) -> Any:
        message = GrpsMessage()
        message.gmap.s_s[piece.input] = piece.text
        message.gmap.s_i32["prompt"] = piece.prompt
        message.gmap.s_i32["final"] = int(piece.final)
        if new_image:
            echo_metadata(message, piece.input, piece.parameters, self._echoes)
        return message

    def _tensors(self, piece: Piece) -> Any:
        message = GrpsMessage()
        for name, field, value in (
            ("image", "flat_int32", self._image),
            ("prompt", "flat_int32", piece.prompt),
            ("final", "flat_uint8", int(piece.final)),
            ("text", "flat_string", piece.text),
        ):
            message.gtensors.tensors.add(name=name, dtype=FLAT_FIELDS[field].number, shape=[1], **{field: [value]})
        return message
