"""Provide a model whose calls block until a test releases them."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.gated import Gated


@pytest.fixture
def gated(tmp_path: Path) -> Generator[Gated]:
    with closing(Gated(tmp_path / "gated")) as model:
        yield model
