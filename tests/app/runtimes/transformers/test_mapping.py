"""Weights do not stay mapped from their file: one that is cut short while it is served would end the process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.servable import Servable
from tests.app.runtimes.transformers.asking import answers, image_input, scene

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["vit", "t5"])
def test_the_file_of_the_weights_is_not_mapped(
    served: Callable[..., Servable], folder_of: Callable[[str], Path], name: str
) -> None:
    servable = served(name)
    (weights,) = folder_of(name).glob("*.safetensors")
    # Other tests of this process may have mapped the weights of others.
    assert str(weights.resolve()) not in Path("/proc/self/maps").read_text()
    if name == "vit":
        assert answers(servable, image_input(scene()))
