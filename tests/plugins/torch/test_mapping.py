"""Test that weight files do not stay mapped: truncating a mapped file would crash the process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.engine.models.servable import Servable
from tests.plugins.torch.asking import answers, image_input, scene

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["vit", "t5"])
def test_weight_file_is_not_mapped(
    served: Callable[..., Servable], folder_of: Callable[[str], Path], name: str
) -> None:
    servable = served(name)
    (weights,) = folder_of(name).glob("*.safetensors")
    # Other tests in this process may have mapped the weights of other models.
    assert str(weights.resolve()) not in Path("/proc/self/maps").read_text()
    if name == "vit":
        assert answers(servable, image_input(scene()))
