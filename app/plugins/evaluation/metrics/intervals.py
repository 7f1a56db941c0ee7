"""Intervals of 95 % of shares that stay wide for few images, also where all of them are right."""

import math

import msgspec

_Z = 1.959964
"""The normal quantile of a two-sided interval of 95 %."""


class Estimate(msgspec.Struct, frozen=True):
    """A number, and its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(share: float, size: float) -> Estimate:
    """Return a share of `size` independent values, more than 0, with its interval (Wilson 1927)."""
    centre = share + _Z**2 / (2 * size)
    spread = _Z * math.sqrt(max(0.0, share * (1 - share)) / size + _Z**2 / (4 * size**2))
    return Estimate(share, (centre - spread) / (1 + _Z**2 / size), (centre + spread) / (1 + _Z**2 / size))


def format_interval(estimate: Estimate) -> str:
    """Return the interval in words."""
    return f"95 % interval {estimate.low:.4f} to {estimate.high:.4f}"
