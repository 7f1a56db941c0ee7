"""Decode JSON whose metadata has lone surrogates, such as the name of a file that is not in UTF-8.

Decoders reject them. Metadata is returned unread, so here its texts are hidden from the decoder and put back as they
were received.
"""

import json
import re
import secrets
from typing import Any, cast

import msgspec

from metadata.request import METADATA_PARAMETER

SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
_MEMBER = re.compile(f'"{METADATA_PARAMETER}"\\s*:\\s*')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_scanner = json.JSONDecoder()


class HiddenTexts:
    """A body with other texts for those `texts` in its metadata that have lone surrogates; none if it is not JSON."""

    def __init__(self, body: bytes) -> None:
        self.body, self.texts, self._secret = body, list[bytes](), secrets.token_hex(16)
        self._replacement = re.compile(f'"{self._secret}([0-9]+)"'.encode())
        # One character a byte keeps all bytes. Surrogates are escaped.
        text = body.decode("latin-1") if _ESCAPED.search(body) else ""
        parts, texts, begin, position = list[str](), list[bytes](), 0, 0
        try:
            while member := _MEMBER.search(text, position):
                _, position = _scanner.raw_decode(text, member.end())
                for literal in _TEXT.finditer(text, member.end(), position):
                    if SURROGATE.search(json.loads(literal[0])):
                        parts += text[begin : literal.start()], f'"{self._secret}{len(texts)}"'
                        texts.append(literal[0].encode("latin-1"))
                        begin = literal.end()
        except (ValueError, RecursionError):
            return
        self.body, self.texts = "".join([*parts, text[begin:]]).encode("latin-1"), texts

    def restore(self, value: object) -> object:
        """Return a decoded value with the texts in its undecoded parts. Raise LookupError if others have one."""
        if isinstance(value, msgspec.Raw):
            return msgspec.Raw(self._replacement.sub(lambda match: self.texts[int(match[1])], bytes(value)))
        if isinstance(value, str) and self._secret in value:
            raise LookupError
        if isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                msgspec.structs.force_setattr(value, name, self.restore(getattr(value, name)))
        elif isinstance(value, dict):
            members = cast("dict[Any, Any]", value).items()
            return {self.restore(name): self.restore(member) for name, member in members}
        elif isinstance(value, list):
            return [self.restore(item) for item in cast("list[Any]", value)]
        return value
