"""Load transformers' tokenizers, and convert texts to model inputs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import tokenizers

from app.core.settings.model import ModelError, ModelSource
from app.plugins.text.tokenizer import Tokenizer
from app.plugins.torch.framework import load_part
from tasks.inference.error import ErrorKind, InferenceError

CANDIDATES_PATH = "parameters.candidate_labels"
"""The path of the classes of a zero-shot model in a request, for errors."""

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def load_tokenizer(source: ModelSource) -> Any:
    """Load transformers' tokenizer of a model.

    Raises:
        ModelError: if it cannot be loaded from the files.
    """
    return load_part("AutoTokenizer", source, "tokenizer.json")


def copy_tokenizer(tokenizer: Any, source: ModelSource, *, keeps_markup: bool = False) -> tuple[Tokenizer, Any]:
    """Copy the fast tokenizer inside transformers' tokenizer, and return it both wrapped and bare.

    transformers changes the padding of the inner tokenizer with each call, which is not thread-safe. With
    `keeps_markup`, special tokens are text unless they have a role, such as the first or the last token.

    Raises:
        ModelError: for a tokenizer that is implemented in Python, or has no vocabulary.
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
    bare: Any = tokenizers.Tokenizer.from_str(state)
    bare.no_padding()
    bare.no_truncation()
    return Tokenizer(bare, tokenizer.unk_token_id), bare


def text_inputs(texts: Sequence[list[int]], tokenizer: Any, types: Sequence[list[int]] | None = None) -> dict[str, Any]:
    """Return the model inputs of texts. Shorter texts are padded at the end and masked.

    Args:
        texts: token ids of each text.
        tokenizer: transformers' tokenizer. It needs a padding token for several texts.
        types: token type id of each token of each text, for models that have them.
    """
    encoded = {"input_ids": texts}
    if types is not None and "token_type_ids" in tokenizer.model_input_names:
        encoded["token_type_ids"] = types
    return dict(tokenizer.pad(encoded, padding=len(texts) > 1, padding_side="right", return_tensors="pt"))


def check_length(count: int, max_tokens: int | None, path: str) -> None:
    """Reject a text with more tokens than the model allows.

    Raises:
        InferenceError: TOO_LARGE with `path`.
    """
    if max_tokens is not None and count > max_tokens:
        raise InferenceError(ErrorKind.TOO_LARGE, f"Expected at most {max_tokens} tokens, got a text of {count}", path)


def max_text_tokens(tokenizer: Any, config: Any, reserved: int = 0) -> int | None:
    """Return the maximum number of tokens of a text, or None if neither tokenizer nor model declares one.

    The model reserves `reserved` positions before the first token.
    """
    positions = getattr(config, "max_position_embeddings", None)
    available = positions - reserved if isinstance(positions, int) else None
    limits = (tokenizer.model_max_length, available)
    return min((limit for limit in limits if isinstance(limit, int) and 0 < limit < 10**9), default=None)
