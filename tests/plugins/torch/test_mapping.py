"""Test that weight files do not stay mapped: truncating a mapped file would crash the process."""

from pathlib import Path

import pytest

from tests.plugins.torch.asking import FolderOf, Served, answers, image_input, scene

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["vit", "t5"])
def test_weight_file_is_not_mapped(served: Served, folder_of: FolderOf, name: str) -> None:
    servable = served(name)
    (weights,) = folder_of(name).glob("*.safetensors")
    # Other tests in this process may have mapped the weights of other models.
    assert str(weights.resolve()) not in Path("/proc/self/maps").read_text()
    if name == "vit":
        assert answers(servable, image_input(scene()))
