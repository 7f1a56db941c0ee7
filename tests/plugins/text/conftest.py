"""Provide tokenizers for the tests of several runtimes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers


@pytest.fixture(scope="session")
def byte_level() -> Callable[[Path], Path]:
    """Return a function that writes a byte-level BPE tokenizer with three merges."""

    def write(path: Path) -> Path:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
        vocabulary = {token: number for number, token in enumerate([*alphabet, "th", "the", "Ġthe"])}
        tokenizer: Any = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<image>", "<end>"])
        tokenizer.save(str(path))
        return path

    return write
