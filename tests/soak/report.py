"""Summarise a run as tables, and list its failures."""

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.benchmarks.serving.section import Cell, Section
from tests.soak.ledger import ANSWERED, Entry, Grade, Ledger, Window
from tests.soak.server import Server, Usage
from tests.soak.store import StoreReport

_MAX_SHOWN = 20
_TENTHS = 10


def sections(ledger: Ledger, usages: Sequence[Usage], server: Server, store_report: StoreReport) -> Sequence[Section]:
    """Return all tables of a run."""
    return [_requests(ledger), _latencies(ledger), _faults(ledger), _memory(usages), _log(server), _store(store_report)]


def failures(ledger: Ledger, findings: Sequence[str], server: Server, store_report: StoreReport) -> Sequence[str]:
    """Return a sentence for each failure; none if the run passed."""
    counts: Counter[Grade] = Counter()
    shown: list[str] = []
    for entry in ledger.entries:
        grade = ledger.grade(entry)
        counts[grade] += 1
        if grade.failure and counts[grade] <= _MAX_SHOWN:
            near = ", ".join(window.kind for window in ledger.windows if window.meets(entry)) or "no fault"
            shown.append(
                f"{grade}: {entry.id} {entry.surface} {entry.model}, {entry.status} after "
                f"{entry.ended - entry.started:.2f} s, during {near}: {entry.note}"
            )
    shown += [f"{count} {grade} requests" for grade, count in counts.items() if grade.failure]
    shown += [f"{count} tracebacks of {kind} in the log" for kind, count in server.exceptions.items()]
    shown += [
        f"{count} acknowledged inferences are {what} in the store"
        for count, what in _store_failures(store_report)
        if count
    ]
    return [*shown, *findings]


def _store_failures(store_report: StoreReport) -> Sequence[tuple[int, str]]:
    return [(len(store_report.missing), "not"), (len(store_report.duplicates), "more than once")]


def _requests(ledger: Ledger) -> Section:
    counts: defaultdict[str, Counter[Grade]] = defaultdict(Counter)
    for entry in ledger.entries:
        counts[entry.surface][ledger.grade(entry)] += 1
    totals = [*sorted(counts.items()), ("all", sum(counts.values(), Counter[Grade]()))]
    rows: list[list[Cell]] = [[name, grades.total(), *(grades[grade] for grade in Grade)] for name, grades in totals]
    about = (
        "Right: the answer equals the reference, with its id and metadata. Refused: a status that the current "
        "fault explains. Down: no answer from a server that was stopped on purpose. The other three must be 0."
    )
    return Section(title="Requests", about=about, columns=["surface", "requests", *Grade], rows=rows)


def _latencies(ledger: Ledger) -> Section:
    quiet: defaultdict[str, list[float]] = defaultdict(list)
    during_faults: defaultdict[str, list[float]] = defaultdict(list)
    times = _merge_times([(window.started, window.ended) for window in ledger.windows])
    starts = [started for started, _ in times]
    for entry in ledger.entries:
        if entry.status == ANSWERED:
            place = bisect_right(starts, entry.ended) - 1
            within = place >= 0 and times[place][1] >= entry.started
            (during_faults if within else quiet)[entry.surface].append((entry.ended - entry.started) * 1000)
    rows: list[list[Cell]] = []
    for name in sorted({*quiet, *during_faults}):
        row: list[Cell] = [name]
        for waits in (sorted(quiet[name]), sorted(during_faults[name])):
            row += [len(waits), *(_percentile(waits, share) for share in (0.5, 0.99))]
        rows.append(row)
    columns = ["surface", "quiet", "p50 ms", "p99 ms", "during faults", "p50 ms", "p99 ms"]
    about = "Milliseconds of right answers, as the client sees them. The client runs on the same machine."
    return Section(title="Latency", about=about, columns=columns, rows=rows)


def _merge_times(times: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for started, ended in sorted(times):
        if merged and started <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(ended, merged[-1][1]))
        else:
            merged.append((started, ended))
    return merged


def _percentile(values: Sequence[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def _faults(ledger: Ledger) -> Section:
    not_answered = [entry for entry in ledger.entries if entry.status != ANSWERED]
    rows: list[list[Cell]] = []
    for kind in sorted({window.kind for window in ledger.windows}):
        windows = [window for window in ledger.windows if window.kind == kind]
        durations = [window.ended - window.started for window in windows]
        recovered = [window for window in windows if window.recovery is not None]
        seconds = [window.recovery for window in recovered if window.alone and window.recovery is not None]
        refused = sum(_accounted(windows, entry) for entry in not_answered)
        times: list[Cell] = [statistics.median(seconds), max(seconds)] if seconds else [None, None]
        rows.append([kind, len(windows), len(recovered), statistics.median(durations), refused, *times])
    columns = ["fault", "times", "recovered", "lasted, s", "not answered", "recovery, s", "worst, s"]
    about = (
        "Recovery: seconds from the end of the cause until `/ready` is 200 and the model answers correctly on "
        "every port. Lasted: median seconds until few requests were open again. Not answered: requests refused or "
        "down because of the fault. Overlapping faults count, but not for the recovery."
    )
    return Section(title="Faults", about=about, columns=columns, rows=rows)


def _accounted(windows: Sequence[Window], entry: Entry) -> bool:
    return any(window.accounts_for(entry) for window in windows)


def _memory(usages: Sequence[Usage]) -> Section:
    lives: defaultdict[int, list[Usage]] = defaultdict(list)
    for usage in usages:
        lives[usage.life].append(usage)
    rows: list[list[Cell]] = []
    if lives:
        longest = max(lives.values(), key=len)
        first = longest[len(longest) // _TENTHS]
        for tenth in range(1, _TENTHS + 1):
            usage = longest[min(len(longest) - 1, tenth * len(longest) // _TENTHS)]
            served = usage.requests - first.requests
            grown = (usage.resident - first.resident) / served if served else None
            usage_cells: list[Cell] = [usage.resident / 1e6, grown, usage.files, usage.threads]
            rows.append([f"{usage.at - longest[0].at:.0f}", usage.requests - longest[0].requests, *usage_cells])
    columns = ["seconds", "requests", "RSS, MB", "bytes a request", "open files", "threads"]
    about = (
        "The process that ran longest, at each tenth of its time: resident memory, its growth since the first "
        "tenth, file descriptors and threads."
    )
    return Section(title="Resource usage", about=about, columns=columns, rows=rows)


def _log(server: Server) -> Section:
    rows: list[list[Cell]] = [[event, count] for event, count in server.warnings.most_common()]
    for kind, count in server.exceptions.items():
        rows.append([f"traceback: {kind}", count])
    rows = rows or [["none", 0]]
    about = "Log lines at warning level and above, and tracebacks. There must be no tracebacks."
    return Section(title="The log", about=about, columns=["event", "lines"], rows=rows)


def _store(store_report: StoreReport) -> Section:
    row: list[Cell] = [
        store_report.acknowledged,
        len(store_report.missing),
        len(store_report.duplicates),
        store_report.rows,
    ]
    columns = ["answered", "missing in the store", "more than once", "rows of the store"]
    about = "Answered requests over all restarts of the server, and their rows in the store at the end."
    return Section(title="The store", about=about, columns=columns, rows=[row])
