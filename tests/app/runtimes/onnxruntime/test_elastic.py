"""Test input sizes that follow the size of each image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runtimes.onnxruntime.elastic import Edges, Line

SIDES = st.integers(1, 20_000)


@pytest.mark.parametrize(
    ("height", "width", "frame"),
    [
        # These are the sizes of DETR's processor, with edges of 800 and 1333.
        (480, 640, (800, 1067)),
        (640, 480, (1067, 800)),
        (500, 2000, (333, 1333)),
        (800, 800, (800, 800)),
        (1, 5000, (32, 1333)),
    ],
)
def test_edges_keep_aspect_ratio(height: int, width: int, frame: tuple[int, int]) -> None:
    assert Edges(shortest=800, longest=1333).frame(height, width) == frame


@given(height=SIDES, width=SIDES)
def test_edges_stay_within_bounds(height: int, width: int) -> None:
    frame = Edges(shortest=736, longest=2000, multiple=32).frame(height, width)
    assert all(side % 32 == 0 and side >= 32 for side in frame)
    assert max(frame) <= 2016
    assert (frame[0] <= frame[1]) or height >= width


@given(height=SIDES, width=SIDES)
def test_line_width_follows_aspect_ratio_within_bounds(height: int, width: int) -> None:
    tall, wide = Line(height=48, narrowest=320, widest=3200).frame(height, width)
    assert tall == 48
    assert 320 <= wide <= 3200
    assert wide in (320, 3200) or abs(wide - 48 * width / height) < 1
