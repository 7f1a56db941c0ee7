"""Encode streamed text as messages of each kind of data."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.core.engine.streams.text_stream import Chunk
from app.plugins.grps.gmap import echo_metadata
from app.plugins.grps.messages import GrpsMessage


class ChunkWriter:
    """Encodes the chunks of one stream, in order.

    Args:
        kind: kind of data in the request, also used for the messages; `str_data` for a request with `bin_data`.
        echoes: for each image with metadata, the key in `s_s` under which the metadata is returned.
    """

    def __init__(self, kind: str, echoes: Mapping[str, str]) -> None:
        self._kind = kind
        self._echoes = echoes
        self._last_chunk: Chunk | None = None
        self._has_text = False
        self._image = -1

    def message(self, chunk: Chunk) -> Any:
        """Return the message for a chunk, without its status; None if it adds nothing.

        In plain text, a line break separates the answers to two prompts. Maps and tensors carry the chunk's prompt and
        whether its answer ends. Tensors also carry the index of the image; in maps, its name is the key.
        """
        last_chunk, self._last_chunk = self._last_chunk, chunk
        # Names may be missing or repeated, but the prompts of an image always arrive in order.
        new_image = last_chunk is None or (last_chunk.final and chunk.prompt <= last_chunk.prompt)
        self._image += new_image
        match self._kind:
            case "gmap":
                return self._map(chunk, new_image)
            case "gtensors":
                return self._tensors(chunk)
            case _:
                text = chunk.text if last_chunk is None or not last_chunk.final else f"\n{chunk.text}"
                return self._text(text, chunk.final)

    def _text(self, text: str, final: bool) -> Any:
        if not text and (self._has_text or not final):
            return None
        self._has_text = True
        return GrpsMessage(str_data=text)

    def _map(self, chunk: Chunk, new_image: bool) -> Any:
        message = GrpsMessage()
        message.gmap.s_s[chunk.input] = chunk.text
        message.gmap.s_i32["prompt"] = chunk.prompt
        message.gmap.s_i32["final"] = int(chunk.final)
        if chunk.grounding is not None:
            message.gmap.s_s["grounding"] = msgspec.json.encode(chunk.grounding).decode()
        if new_image:
            echo_metadata(message, chunk.input, chunk.parameters, self._echoes)
        return message

    def _tensors(self, chunk: Chunk) -> Any:
        message = GrpsMessage()
        add = message.gtensors.tensors.add
        add(name="image", dtype="DT_INT32", shape=[1], flat_int32=[self._image])
        add(name="prompt", dtype="DT_INT32", shape=[1], flat_int32=[chunk.prompt])
        add(name="final", dtype="DT_UINT8", shape=[1], flat_uint8=[int(chunk.final)])
        add(name="text", dtype="DT_STRING", shape=[1], flat_string=[chunk.text])
        if chunk.grounding is not None:
            found = msgspec.json.encode(chunk.grounding).decode()
            add(name="grounding", dtype="DT_STRING", shape=[1], flat_string=[found])
        return message
