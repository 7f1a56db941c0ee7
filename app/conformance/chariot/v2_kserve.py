"""Collect all clauses of chariot-v2-kserve."""

from app.conformance.chariot import answering, metadata, tolerance
from app.conformance.chariot.envelope import LOOKING
from app.conformance.chariot.items import item_clauses
from app.conformance.chariot.places import place_clauses

__all__ = ("CLAUSES",)

CLAUSES = (
    *answering.CLAUSES,
    *item_clauses("CV2K", LOOKING),
    *place_clauses("CV2K", LOOKING),
    *metadata.CLAUSES,
    *tolerance.CLAUSES,
)
