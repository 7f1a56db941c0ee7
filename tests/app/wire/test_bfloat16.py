"""Test conversion between BF16 bits and numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire.bfloat16 import from_bfloat16_bits, to_bfloat16_bits


@given(st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7F80 != 0x7F80 or bits & 0x7F == 0))
def test_bf16_bits_round_trip(bits: int) -> None:
    assert to_bfloat16_bits(from_bfloat16_bits(np.array([bits], np.uint16))).tolist() == [bits]


@given(st.floats(-(2.0**127), 2.0**127, width=32).filter(lambda value: abs(value) >= 2.0**-126))
def test_rounding_error_is_at_most_half_a_unit_in_the_last_place(value: float) -> None:
    (rounded,) = from_bfloat16_bits(to_bfloat16_bits(np.array([value], np.float32))).tolist()
    assert abs(rounded - value) <= abs(value) * 2**-8


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.00390625, 0x3F80), (1.01171875, 0x3F82), (3.4e38, 0x7F80), (-np.inf, 0xFF80), (np.nan, 0x7FC0)],
)
def test_ties_round_to_even_and_overflow_is_infinite(value: float, bits: int) -> None:
    assert to_bfloat16_bits(np.array([value], np.float32)).tolist() == [bits]
