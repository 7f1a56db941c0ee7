"""Text to token ids and back, from tokenizer.json, without importing transformers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.settings.model import ModelError

if TYPE_CHECKING:
    import tokenizers

__all__ = ("Tokenizer", "load_tokenizer")

_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """A read-only view of a fast tokenizer.

    Args:
        inner: is not changed any more.
        unknown: the id that stands for whatever the vocabulary lacks, where there is one.
    """

    def __init__(self, inner: "tokenizers.Tokenizer", unknown: int | None) -> None:
        self._inner = inner
        self.unknown = unknown
        self.special_ids = frozenset(id_ for id_, token in inner.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str, *, with_special_tokens: bool) -> list[int]:
        """Token ids of `text`; special tokens spelled out in it are recognised.

        Args:
            text: has no lone surrogates.
            with_special_tokens: whether to add what the model wants around a text, such as its first token.
        """
        return self._inner.encode(text, add_special_tokens=with_special_tokens).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens left out."""
        return self._inner.decode(ids, skip_special_tokens=True)

    def id_of(self, token: str) -> int | None:
        """The id of one token, if the vocabulary has it."""
        return self._inner.token_to_id(token)

    def text_of(self, id_: int) -> str | None:
        """One token as it is spelled, if the vocabulary has it."""
        return self._inner.id_to_token(id_)

    def pieces(self, ids: Iterable[int], behind: Sequence[int] = ()) -> Iterator[str]:
        """The text of `ids` piece by piece while they come. Joined, the pieces are the text of all of them.

        Behind other tokens, of which the last ones are told as `behind`, they are what these tokens go on with: a
        space, or the rest of a word, that would be lost at the start of a text.

        A character that takes several tokens is held back until it is whole. Each piece is read behind the tokens of
        the piece before it, because many decoders treat the first token of a text differently.
        """
        tokens = [each for each in behind if each not in self.special_ids]
        start, written = 0, len(tokens)
        for each in ids:
            if each in self.special_ids:
                continue
            tokens.append(each)
            before, after = self.decode(tokens[start:written]), self.decode(tokens[start:])
            if len(after) > len(before) and not after.endswith(_HALF_CHARACTER):
                yield after[len(before) :]
                start, written = written, len(tokens)
        rest = self.decode(tokens[start:])[len(self.decode(tokens[start:written])) :]
        if rest:
            yield rest


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json.

    Raises:
        ModelError: naming the file that is missing or cannot be understood.
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
        raise ModelError(f"{path} is not a tokenizer that can be read: {error}") from error
