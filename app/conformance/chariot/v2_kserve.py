"""Collect all checks of chariot-v2-kserve."""

from app.conformance.chariot import leniency, metadata, responses
from app.conformance.chariot.coordinates import coordinate_checks
from app.conformance.chariot.envelope import IMAGE_PROBE
from app.conformance.chariot.items import item_checks

__all__ = ("CHECKS",)

CHECKS = (
    *responses.CHECKS,
    *item_checks("CV2K", IMAGE_PROBE),
    *coordinate_checks("CV2K", IMAGE_PROBE),
    *metadata.CHECKS,
    *leniency.CHECKS,
)
