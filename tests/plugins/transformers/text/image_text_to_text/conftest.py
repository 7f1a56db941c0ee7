from pathlib import Path

import pytest

from tests.plugins.transformers.text.image_text_to_text import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write_model(tmp_path)
