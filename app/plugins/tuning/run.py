"""The search of `charioteer tune`: which set-ups are compared, measured, refused and chosen."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.core.assembly.discovery import model_at
from app.core.assembly.models import describe
from app.core.cli.terminal import Bar, counted
from app.core.runtimes.onnxruntime.images.decision import is_antialiased
from app.core.settings.model import ModelError, ModelSource
from app.plugins.tuning.benchmarking import Measurement, best_measurement, measure_candidates
from app.plugins.tuning.candidates import Candidate, all_candidates, current_candidate, variants, with_candidate
from app.plugins.tuning.data import AnswerCheck, AnswerComparison, TuningData
from app.plugins.tuning.quantization import quantize
from tasks.inference.limits import Limits

if TYPE_CHECKING:
    from app.plugins.tuning.command import TuningOptions

_ROUNDS = 3
_ANSWER_SHARE, _VARIANT_SHARE = 0.4, 0.7
"""Shares of the time at which comparing answers, and measuring the variants, must have ended."""


class TuningSearch:
    """Compares the answers of all variants, measures those that are close, then batches and threads of the best.

    Without `data`, only what keeps answers is tried. `images` are encoded, for the measurements. `scratch` is an empty
    folder for a quantised version.

    Attributes:
        comparison: compares the answers; None without `data`.
        checks: what each variant does to answers.
        refused: the variants that change answers too much.
        notes: sentences about what was not tried.
        sources: the model to serve, by precision.
        measurements: of all measured candidates, in the order in which they were tried.
    """

    def __init__(
        self,
        source: ModelSource,
        data: TuningData | None,
        images: Sequence[bytes],
        limits: Limits,
        options: "TuningOptions",
        workers: int,
        scratch: Path,
        bar: Bar,
    ) -> None:
        self._data, self._images, self._options, self._scratch = data, images, options, scratch
        self._workers, self._bar, self._limits = workers, bar, limits
        self._threads = options.threads or (1, len(os.sched_getaffinity(0)))
        description = describe(source)
        self._current = current_candidate(source, is_graph=description.platform == "onnx")
        self.sources = {self._current.precision if self._current.precision == "int8" else "fp32": source}
        self.sources.setdefault("bf16", source)
        precisions, decodes = (options.precisions, options.decodes) if data else ((), ())
        # A model that is resized by OpenCV already stays so.
        resizes = options.resizes if data and is_antialiased(description) else ()
        self._variants = variants(self._current, options.runtimes, precisions, decodes, resizes)
        self.comparison = AnswerComparison(data, limits) if data else None
        self.checks: dict[Candidate, AnswerCheck] = {}
        self.refused: set[Candidate] = set()
        self.notes = [*data.notes] if data else []
        self._skipped: dict[str, list[str]] = {}
        self.measurements: Sequence[Measurement] = ()
        self._started = time.monotonic()
        grid = len(all_candidates(options.batches, self._threads, 0)) + 1
        bar.show(0, len(self._variants) * (1 + _ROUNDS) + grid * _ROUNDS)
        if data is None and self._current.runtime is not None:
            self.notes.append(
                "Pass --data or --labels to also try what changes answers: bf16, int8, reduced decoding and "
                "OpenCV's resize."
            )

    def run(self) -> tuple[Measurement, Measurement | None]:
        """Return the best of the last measurements, and that of the current settings, if it could be measured."""
        kept = self._usable_variants()
        for reason, names in self._skipped.items():
            self.notes.append(f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not tried: {reason}")
        measured = self._measure(kept, _VARIANT_SHARE) if len(kept) > 1 else ()
        objective = self._options.objective
        best = best_measurement(measured, objective).candidate if measured else kept[0]
        grid = all_candidates(self._options.batches, self._threads, self._options.delay_ms, best)
        finals = [kept[0], *(candidate for candidate in grid if candidate != kept[0])]
        if self._current not in finals and _variant(self._current) in (self.checks or self._variants):
            finals.append(self._current)
        last = self._measure(finals, 1.0)
        if len(last) < len(finals):
            self.notes.append(f"{counted(len(finals) - len(last), 'set-up')} not measured: --minutes is over.")
        self.measurements = [*(row for row in measured if row.candidate not in finals), *last]
        winner = best_measurement([row for row in last if _variant(row.candidate) not in self.refused], objective)
        return winner, next((row for row in last if row.candidate == self._current), None)

    def _usable_variants(self) -> list[Candidate]:
        """Return the variants that can be loaded, and whose answers are close enough to those of the first."""
        kept: list[Candidate] = []
        for variant in self._variants:
            if kept and self.comparison and self._elapsed() > _ANSWER_SHARE:
                self._skip(variant, "--minutes is too short.")
                continue
            before = time.monotonic()
            try:
                source = self._source_for(variant)
                if self.comparison is None:
                    describe(source)
                else:
                    self.checks[variant] = self.comparison.check(source)
            except ModelError as error:
                if not kept:
                    raise
                self._skip(variant, str(error))
                continue
            self._bar.advance()
            if self.comparison is not None and not kept:
                self._limit_images(self.comparison, time.monotonic() - before)
            if variant in self.checks and self.checks[variant].drop > self._options.max_drop:
                self.refused.add(variant)
                self._bar.advance(_ROUNDS)
            else:
                kept.append(variant)
        return kept

    def _skip(self, variant: Candidate, reason: str) -> None:
        decode = " with reduced decode" if variant.reduced_decode else ""
        resize = " with OpenCV's resize" if variant.opencv_resize else ""
        name = f"{variant.runtime or 'This runtime'} {variant.precision}{decode}{resize}"
        # One sentence a reason: a missing extra concerns several variants.
        self._skipped.setdefault(reason, []).append(name)
        self._bar.advance(1 + _ROUNDS)

    def _limit_images(self, comparison: AnswerComparison, seconds: float) -> None:
        """Compare fewer images if all variants would not be compared in time."""
        available = _ANSWER_SHARE * self._options.minutes * 60 / len(self._variants)
        if seconds > available:
            count = max(1, int(len(comparison.items) * available / seconds))
            comparison.items = comparison.items[:count]
            self.notes.append(f"Compared only {counted(count, 'image')}, because of --minutes.")

    def _measure(self, candidates: Sequence[Candidate], share: float) -> Sequence[Measurement]:
        def on_measured() -> bool:
            self._bar.advance()
            return self._elapsed() < share

        pairs = [(candidate, self._source_for(candidate)) for candidate in candidates]
        seconds = self._options.seconds
        return measure_candidates(pairs, self._images, self._workers, seconds, _ROUNDS, on_measured, self._limits)

    def _source_for(self, candidate: Candidate) -> ModelSource:
        if candidate.precision not in self.sources and self._data is not None:
            original = self.sources["fp32"]
            folder = self._scratch / "1"
            quantize(original, self._data.calibration, folder)
            (quantized,) = model_at(folder)
            self.sources["int8"] = msgspec.structs.replace(quantized, name=original.name, root=original.root)
        return with_candidate(self.sources[candidate.precision], candidate, self._workers)

    def _elapsed(self) -> float:
        """Return the elapsed share of the time."""
        return (time.monotonic() - self._started) / (self._options.minutes * 60)


def _variant(candidate: Candidate) -> Candidate:
    """Return the part of a candidate that may change answers."""
    return msgspec.structs.replace(candidate, batch=1, delay_ms=0.0, threads=1)
