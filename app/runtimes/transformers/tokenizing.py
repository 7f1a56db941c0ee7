"""A model's tokenizer as the rest of the house knows one."""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.framework import first_line, framework
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("check_length", "load_tokenizer", "most_tokens", "own_tokenizer", "text_inputs")


def load_tokenizer(source: ModelSource) -> Any:
    """Transformers' tokenizer of a model.

    Raises:
        ModelError: when it cannot be made of the files.
    """
    try:
        return framework().transformers.AutoTokenizer.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise ModelError(f"{source.folder} has no tokenizer that can be used: {first_line(error)}") from error


def own_tokenizer(tokenizer: Any, source: ModelSource) -> tuple[Tokenizer, Any]:
    """A copy of what is behind transformers' tokenizer, twice: as ours, and bare.

    transformers changes the padding of the one behind it with each call, which several threads must not do at once.

    Raises:
        ModelError: for a tokenizer that is written in Python.
    """
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if inner is None:
        raise ModelError(f"{source.folder}: {type(tokenizer).__name__} has no tokenizer.json, which is needed here")
    bare: Any = tokenizers.Tokenizer.from_str(inner.to_str())
    bare.no_padding()
    bare.no_truncation()
    return Tokenizer(bare, tokenizer.unk_token_id), bare


def text_inputs(
    texts: Sequence[Sequence[int]], tokenizer: Any, types: Sequence[Sequence[int]] | None = None
) -> Mapping[str, Any]:
    """The inputs of texts, those that the model's tokenizer names; shorter ones are padded behind, and masked there.

    Args:
        texts: the token ids of each.
        tokenizer: transformers' own; has a token that pads, where texts are not of one length.
        types: for each token of each text, which part of the text it belongs to; the first when absent.
    """
    torch, longest = framework().torch, max(map(len, texts))

    def padded(rows: Sequence[Sequence[int]], filler: int) -> Any:
        return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])

    made = {
        "input_ids": padded(texts, tokenizer.pad_token_id),
        "attention_mask": padded([[1] * len(each) for each in texts], 0),
        "token_type_ids": padded(types or [[0] * len(each) for each in texts], tokenizer.pad_token_type_id),
    }
    return {name: value for name, value in made.items() if name == "input_ids" or name in tokenizer.model_input_names}


def check_length(count: int, most: int | None, path: str) -> None:
    """Refuse a text of more tokens than the model has places for.

    Raises:
        InferenceError: TOO_LARGE, naming `path`.
    """
    if most is not None and count > most:
        raise InferenceError(ErrorKind.TOO_LARGE, f"Expected at most {most} tokens, got a text of {count}", path)


def most_tokens(tokenizer: Any, config: Any, taken: int = 0) -> int | None:
    """How many tokens a text may have; None where neither the tokenizer nor the model says.

    Args:
        tokenizer: transformers' own.
        config: of the model.
        taken: so many of the model's places are before that of the first token.
    """
    positions = getattr(config, "max_position_embeddings", None)
    places = positions - taken if isinstance(positions, int) else None
    told = [each for each in (tokenizer.model_max_length, places) if isinstance(each, int) and 0 < each < 10**9]
    return min(told, default=None)
