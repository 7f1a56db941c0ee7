"""Load tokenizers of transformers, and encode text to token ids and decode it in several threads."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.text.library import load_part
from tasks.inference.error import ErrorKind, InferenceError

if TYPE_CHECKING:
    import tokenizers

_MAX_IDS = 2**32
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_INCOMPLETE_CHARACTER = "\N{REPLACEMENT CHARACTER}"

CANDIDATES_PATH = "parameters.candidate_labels"
"""The path of the classes of a zero-shot model in a request, for errors."""


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

    def spans(self, text: str) -> Sequence[tuple[int, int]]:
        """Return the start and end of each token in `text`, special tokens around it included."""
        return self._inner.encode(text).offsets

    def decode(self, ids: Sequence[int], *, with_special_tokens: bool = False) -> str:
        """Return the text of `ids`."""
        return self._inner.decode(ids, skip_special_tokens=not with_special_tokens)

    def to_json(self) -> str:
        """Return the content of a tokenizer.json."""
        return self._inner.to_str()

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


def load_tokenizer(source: ModelSource) -> Any:
    """Load transformers' tokenizer of a model. Raise ModelError if it cannot be loaded from the files."""
    return load_part("AutoTokenizer", source, "tokenizer.json")


def copy_tokenizer(tokenizer: Any, source: ModelSource, *, keeps_markup: bool = False) -> Tokenizer:
    """Copy the fast tokenizer inside transformers' tokenizer.

    transformers changes the padding of the inner tokenizer with each call, which is not thread-safe. With
    `keeps_markup`, special tokens are text unless they have a role, such as the first or the last token. Raise
    ModelError for a tokenizer that is implemented in Python, or has no vocabulary.
    """
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if inner is None:
        raise ModelError(f"{source.folder}: {type(tokenizer).__name__} has no tokenizer.json, which is required")
    if set(inner.get_vocab()) <= {*tokenizer.all_special_tokens, "▁"}:
        # transformers makes up such a vocabulary if the folder has none, and reads every word as unknown.
        raise ModelError(
            f"{source.folder} has no vocabulary for its {type(tokenizer).__name__}: is tokenizer.json missing?"
        )
    state = inner.to_str()
    if keeps_markup:
        content = msgspec.json.decode(state)
        roles = {getattr(tokenizer, f"{role}_token_id") for role in _ROLES}
        for token in content["added_tokens"]:
            token["special"] = token["id"] in roles
        state = msgspec.json.encode(content).decode()
    import tokenizers

    bare: Any = tokenizers.Tokenizer.from_str(state)
    bare.no_padding()
    bare.no_truncation()
    return Tokenizer(bare, tokenizer.unk_token_id)


def check_length(count: int, max_tokens: float, path: str) -> None:
    """Reject a text with more tokens than the model allows. Raise TOO_LARGE with `path`."""
    if count > max_tokens:
        raise InferenceError(ErrorKind.TOO_LARGE, f"Expected at most {max_tokens} tokens, got a text of {count}", path)
