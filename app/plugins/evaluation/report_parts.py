"""Parts that other plugins add to reports: extensions of ``evaluation.reports``."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import Dataset
from app.plugins.evaluation.report import EvaluationReport


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a report was made of.

    `results` are the answers that could be read, with the model's labels; `is_mapped` says whether a map gives them the
    dataset's. `source` is the model, if it ran in this process.
    """

    dataset: Dataset
    results: Sequence[EvaluatedItem]
    is_mapped: bool
    source: ModelSource | None


class ReportPart(Protocol):
    """Adds to reports if the options of its plugin ask for it. Both methods raise `EvaluationError` for the user."""

    def is_wanted(self, source: ModelSource | None, /) -> bool:
        """Return whether to call `extend`; check before the first request what it needs. `source`: `EvaluationRun`."""
        ...

    def extend(self, report: EvaluationReport, run: EvaluationRun, /) -> EvaluationReport:
        """Return the report with the part."""
        ...


def wanted_parts(source: ModelSource | None) -> Sequence[ReportPart]:
    """Return the parts that the options of the command ask for; raise `EvaluationError` if one needs something else."""
    parts: Sequence[ReportPart] = registry().extensions("evaluation.reports")
    return [part for part in parts if part.is_wanted(source)]
