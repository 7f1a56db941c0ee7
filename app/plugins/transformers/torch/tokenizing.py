"""Convert texts to model inputs."""

from collections.abc import Sequence
from typing import Any

from tasks.inference.error import ErrorKind, InferenceError

CANDIDATES_PATH = "parameters.candidate_labels"
"""The path of the classes of a zero-shot model in a request, for errors."""


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
    """Reject a text with more tokens than the model allows. Raise TOO_LARGE with `path`."""
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
