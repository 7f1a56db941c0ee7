"""Encode text to token ids and decode it, from tokenizer.json, without importing transformers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.core.settings.model import ModelError

if TYPE_CHECKING:
    import tokenizers

_MAX_IDS = 2**32
_INCOMPLETE_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """A read-only view of a fast tokenizer, which must not change. `unknown` is the id of the unknown token."""

    def __init__(self, inner: "tokenizers.Tokenizer", unknown: int | None) -> None:
        self._inner = inner
        self.unknown = unknown
        self.special_ids = frozenset(id_ for id_, token in inner.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str, *, with_special_tokens: bool) -> list[int]:
        """Return the token ids of a text without lone surrogates. Special tokens spelled out in it are recognised.

        `with_special_tokens` adds the special tokens around a text, such as its first token.
        """
        return self._inner.encode(text, add_special_tokens=with_special_tokens).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens."""
        return self._inner.decode(ids, skip_special_tokens=True)

    def id_of(self, token: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""
        return self._inner.token_to_id(token)

    def text_of(self, id_: int) -> str | None:
        """Return the spelling of a token, or None if the id is not in the vocabulary."""
        return self._inner.id_to_token(id_) if 0 <= id_ < _MAX_IDS else None

    def decode_stream(self, ids: Iterable[int], context: Sequence[int] = ()) -> Iterator[str]:
        """Decode `ids` chunk by chunk as they arrive. The joined chunks are the text of all ids.

        A character of several tokens is held back until it is complete. Each chunk is decoded together with the tokens
        of the previous chunk, because many decoders treat the first token of a text differently. `context` are the last
        tokens of the prompt, so that a leading space or the rest of a word is kept.
        """
        tokens = [id_ for id_ in context if id_ not in self.special_ids]
        start, written = 0, len(tokens)
        for id_ in ids:
            if id_ in self.special_ids:
                continue
            tokens.append(id_)
            before, after = self.decode(tokens[start:written]), self.decode(tokens[start:])
            if len(after) > len(before) and not after.endswith(_INCOMPLETE_CHARACTER):
                yield after[len(before) :]
                start, written = written, len(tokens)
        remainder = self.decode(tokens[start:])[len(self.decode(tokens[start:written])) :]
        if remainder:
            yield remainder


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json.

    Raises:
        ModelError: if the file is missing or cannot be parsed.
    """
    import tokenizers

    if not path.is_file():
        raise ModelError(f"{path} is missing")
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
        inner.no_padding()
        inner.no_truncation()
        unknown = getattr(inner.model, "unk_token", None)
        return Tokenizer(inner, inner.token_to_id(unknown) if isinstance(unknown, str) else None)
    except Exception as error:
        raise ModelError(f"{path} cannot be read as a tokenizer: {error}") from error
