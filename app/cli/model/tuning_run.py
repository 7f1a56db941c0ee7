"""The search of `charioteer tune`: which set-ups are compared, measured, refused and chosen."""

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.assembly.benchmarking import Measurement, best_measurement, measure_candidates
from app.assembly.discovery import model_at
from app.assembly.models import describe
from app.assembly.quantization import quantize
from app.assembly.tuning import Candidate, all_candidates, current_candidate, variants, with_candidate
from app.cli.model.tuning_data import AnswerCheck, AnswerComparison, TuningData
from app.settings.model import ModelError, ModelSource

if TYPE_CHECKING:
    from app.cli.model.tune import TuningOptions

_ROUNDS = 3
_ANSWER_SHARE, _VARIANT_SHARE = 0.4, 0.7
"""Shares of the time at which comparing answers, and measuring the variants, must have ended."""


class TuningResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run.

    Attributes:
        measurements: of all measured candidates, in the order in which they were tried.
        best: the best of the last measurements.
        current: the measurement of the current settings, of the same turns; None if they cannot be measured.
        checks: what each variant does to answers.
        refused: the variants that change answers too much.
        images: number of compared images.
        metric: what the checks measure.
        notes: sentences about what was not tried.
        sources: the model to serve, by precision.
    """

    measurements: Sequence[Measurement]
    best: Measurement
    current: Measurement | None
    checks: Mapping[Candidate, AnswerCheck]
    refused: Set[Candidate]
    images: int
    metric: str
    notes: Sequence[str]
    sources: Mapping[str, ModelSource]


class TuningSearch:
    """Compares the answers of all variants, measures those that are close, then batches and threads of the best.

    Args:
        source: the model.
        data: images to compare; None to try only what keeps answers.
        images: encoded images for the measurements.
        options: what to try.
        workers: number of workers of the server.
        scratch: an empty folder for a quantised version.
        on_step: called after each step with its share of all steps.
    """

    def __init__(
        self,
        source: ModelSource,
        data: TuningData | None,
        images: Sequence[bytes],
        options: "TuningOptions",
        workers: int,
        scratch: Path,
        on_step: Callable[[float], None],
    ) -> None:
        self._data, self._images, self._options, self._scratch = data, images, options, scratch
        self._workers = workers
        self._threads = options.threads or (1, len(os.sched_getaffinity(0)))
        self._current = current_candidate(source, is_graph=describe(source).platform == "onnx")
        self._sources = {self._current.precision if self._current.precision == "int8" else "fp32": source}
        self._sources.setdefault("bf16", source)
        precisions, decodes = (options.precisions, options.decodes) if data else ((), ())
        self._variants = list(variants(self._current, options.runtimes, precisions, decodes))
        self._comparison = AnswerComparison(data) if data else None
        self._checks: dict[Candidate, AnswerCheck] = {}
        self._refused: set[Candidate] = set()
        self._notes: list[str] = []
        self._started = time.monotonic()
        grid = len(all_candidates(options.batches, self._threads, 0)) + 1
        self._steps = len(self._variants) * (1 + _ROUNDS) + grid * _ROUNDS
        self._on_step = on_step
        if data is None and self._current.runtime is not None:
            self._notes.append(
                "Pass --data or --labels to also try bf16, int8 and reduced decoding, which change answers."
            )

    def run(self) -> TuningResult:
        """Return the measurements, the best set-up, and what was refused."""
        kept = self._loadable() if self._comparison is None else self._close(self._comparison)
        measured = list(self._measure(kept, _VARIANT_SHARE)) if len(kept) > 1 else []
        objective = self._options.objective
        best = best_measurement(measured, objective).candidate if measured else kept[0]
        grid = all_candidates(self._options.batches, self._threads, self._options.delay_ms, best)
        finals = [kept[0], *(candidate for candidate in grid if candidate != kept[0])]
        if self._current not in finals and self._is_served(self._current):
            finals.append(self._current)
        last = self._measure(finals, 1.0)
        winner = best_measurement([row for row in last if _variant(row.candidate) not in self._refused], objective)
        if len(last) < len(finals):
            self._notes.append(f"{len(finals) - len(last)} set-ups were not measured: --minutes is over.")
        return TuningResult(
            measurements=[*(row for row in measured if row.candidate not in finals), *last],
            best=winner,
            current=next((row for row in last if row.candidate == self._current), None),
            checks=self._checks,
            refused=self._refused,
            images=self._comparison.count if self._comparison else 0,
            metric=self._comparison.metric_name if self._comparison else "",
            notes=self._notes,
            sources=self._sources,
        )

    def _close(self, comparison: AnswerComparison) -> list[Candidate]:
        """Return the variants whose answers are close enough to those of the first."""
        kept: list[Candidate] = []
        for variant in self._variants:
            if kept and self._elapsed() > _ANSWER_SHARE:
                self._notes.append(f"{_text(variant)} was not tried: --minutes is too short.")
                self._step(1 + _ROUNDS)
                continue
            before = time.monotonic()
            try:
                check = comparison.check(self._source_for(variant))
            except ModelError as error:
                if not kept:
                    raise
                self._notes.append(f"{_text(variant)} was not tried: {error}")
                self._step(1 + _ROUNDS)
                continue
            self._checks[variant] = check
            if not kept:
                self._limit_images(comparison, time.monotonic() - before)
            self._step(1)
            if check.drop <= self._options.max_drop:
                kept.append(variant)
            else:
                self._refused.add(variant)
                self._step(_ROUNDS)
        return kept

    def _limit_images(self, comparison: AnswerComparison, seconds: float) -> None:
        """Compare fewer images if all variants would not be compared in time."""
        available = _ANSWER_SHARE * self._options.minutes * 60 / len(self._variants)
        if seconds > available:
            comparison.limit(int(comparison.count * available / seconds))
            self._notes.append(f"Compared only {comparison.count} images, because of --minutes.")

    def _loadable(self) -> list[Candidate]:
        kept: list[Candidate] = []
        for variant in self._variants:
            try:
                describe(self._source_for(variant))
            except ModelError as error:
                if not kept:
                    raise
                self._notes.append(f"{_text(variant)} was not tried: {error}")
            else:
                kept.append(variant)
            self._step(1)
        return kept

    def _measure(self, candidates: Sequence[Candidate], share: float) -> Sequence[Measurement]:
        def on_measured() -> bool:
            self._step(1)
            return self._elapsed() < share

        pairs = [(candidate, self._source_for(candidate)) for candidate in candidates]
        seconds = self._options.seconds
        return measure_candidates(pairs, self._images, self._workers, seconds, _ROUNDS, on_measured)

    def _source_for(self, candidate: Candidate) -> ModelSource:
        if candidate.precision not in self._sources and self._data is not None:
            original = self._sources["fp32"]
            folder = self._scratch / "1"
            quantize(original, self._data.calibration, folder)
            (quantized,) = model_at(folder)
            self._sources["int8"] = msgspec.structs.replace(quantized, name=original.name, root=original.root)
        return with_candidate(self._sources[candidate.precision], candidate, self._workers)

    def _is_served(self, candidate: Candidate) -> bool:
        return _variant(candidate) in (self._checks if self._comparison else self._variants)

    def _elapsed(self) -> float:
        return (time.monotonic() - self._started) / (self._options.minutes * 60)

    def _step(self, count: int) -> None:
        self._on_step(count / self._steps)


def _variant(candidate: Candidate) -> Candidate:
    """Return the part of a candidate that may change answers."""
    return msgspec.structs.replace(candidate, batch=1, delay_ms=0.0, threads=1)


def _text(candidate: Candidate) -> str:
    decode = ", reduced decode" if candidate.reduced_decode else ""
    return f"{candidate.runtime or 'This runtime'} {candidate.precision}{decode}"
