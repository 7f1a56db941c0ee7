"""Input sizes of PaddleOCR, which follow the size of each image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.layouts.text_sizes import TextLine, TextPage

SIDES = st.integers(1, 20_000)


@pytest.mark.parametrize(
    ("height", "width", "frame"),
    [
        (300, 451, (736, 1120)),
        (901, 1203, (896, 1216)),
        (1500, 3000, (992, 1984)),
        (150, 451, (736, 2208)),
        (10, 100, (384, 4000)),
    ],
)
def test_page_is_enlarged_but_not_reduced_as_in_paddleocr(height: int, width: int, frame: tuple[int, int]) -> None:
    assert TextPage(min_side=736, max_side=2000, max_enlarged=4000).input_size(height, width) == frame


@given(height=SIDES, width=SIDES)
def test_page_stays_within_bounds(height: int, width: int) -> None:
    frame = TextPage(min_side=736, max_side=2000, max_enlarged=4000).input_size(height, width)
    assert all(side % 32 == 0 and side >= 32 for side in frame)
    assert max(frame) <= 4000
    assert (frame[0] <= frame[1]) or height >= width


@given(height=SIDES, width=SIDES)
def test_line_width_follows_aspect_ratio_within_bounds(height: int, width: int) -> None:
    tall, wide = TextLine(height=48, min_width=320, max_width=3200).input_size(height, width)
    assert tall == 48
    assert 320 <= wide <= 3200
    assert wide in (320, 3200) or abs(wide - 48 * width / height) < 1
