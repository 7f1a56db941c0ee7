"""Share labels, tokenizers and distinctive random weights between tiny models."""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

LABELS = ("cat", "dog", "ship")
WORDS = ("a", "an", "cat", "dog", "ship", "photo", "of", "this", "is", "what", "in", "the", "picture", "red", "blue",
         "hello", "world", "john", "lives", "paris", "works", "at", "acme", "who", "?", ".", ",", ":")  # fmt: skip


@cache
def transformers() -> Any:
    """Import the library with its logging off."""
    library: Any = importlib.import_module("transformers")
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


class _Transformers:
    """Import the library when a model is made, not when a module of tests is imported."""

    def __getattr__(self, name: str) -> Any:
        return getattr(transformers(), name)


t: Any = _Transformers()

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
"""The size of the networks, in the words of most configurations."""


@cache
def torch() -> Any:
    return importlib.import_module("torch")


def label_config() -> dict[str, Any]:
    return {"id2label": dict(enumerate(LABELS)), "label2id": {label: number for number, label in enumerate(LABELS)}}


def save(folder: Path, model: Any, *others: Any) -> Path:
    """Save a model, made livelier than its initialisation, and what belongs to it."""
    for part in (model, *others):
        part.save_pretrained(folder)
    return folder


_SCALED_WEIGHTS = ("classifier", "class_", "decode_head", "lm_head", "queries_embed", "query_embed", "mask_embed")


def random_model(
    create: Callable[[], Any],
    scale: float = 3.0,
    *,
    seed: int = 0,
    suppressed_tokens: Sequence[int] = (),
    preserve_variance: bool = False,
) -> Any:
    """A model with seeded weights, some of them larger than usual, so that its answers differ from each other.

    Tokens that are `suppressed_tokens` are hardly ever generated. Weights that are `preserve_variance` hand on
    the differences between positions of an image, which their initialisation would remove.
    """
    torch().manual_seed(seed)
    model = create().eval()
    with torch().no_grad():
        if suppressed_tokens:
            model.get_output_embeddings().weight[list(suppressed_tokens)] = 0
        for name, value in model.named_parameters():
            if preserve_variance and value.ndim > 1:
                value.normal_(0, value[0].numel() ** -0.5)
            if value.ndim > 1 and any(part in name for part in _SCALED_WEIGHTS):
                value.mul_(scale)
    return model


def bert_tokenizer() -> Any:
    """WordPiece over a few words and all small letters."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    return transformers().BertTokenizerFast(vocab=vocabulary, model_max_length=64)


def byte_tokenizer(*special_tokens: str, **roles: Any) -> Any:
    """A tokenizer of bytes: it can say anything."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer: Any = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<pad>", "<eos>", *special_tokens])
    return transformers().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", **roles
    )
