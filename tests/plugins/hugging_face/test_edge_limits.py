"""Test input sizes that follow the size of each image."""

import pytest

from app.plugins.hugging_face.files import EdgeLimits


@pytest.mark.parametrize(
    ("height", "width", "frame"),
    [
        # These are the sizes of DETR's processor, with edges of 800 and 1333.
        (480, 640, (800, 1066)),
        (640, 480, (1066, 800)),
        (500, 2000, (333, 1333)),
        (800, 800, (800, 800)),
        (1, 5000, (32, 1333)),
    ],
)
def test_edges_keep_aspect_ratio(height: int, width: int, frame: tuple[int, int]) -> None:
    assert EdgeLimits(shortest=800, longest=1333).input_size(height, width) == frame
