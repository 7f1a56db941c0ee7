"""Collect all checks of chariot-v2-kserve."""

from app.conformance.chariot import coordinates, items, leniency, metadata, responses
from app.conformance.chariot.envelope import IMAGE_PROBE

CHECKS = (
    *responses.CHECKS,
    *(check.bind("CV2K", IMAGE_PROBE) for check in (*items.CHECKS, *coordinates.CHECKS)),
    *metadata.CHECKS,
    *leniency.CHECKS,
)
