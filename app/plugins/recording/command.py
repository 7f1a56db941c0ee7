"""``charioteer inferences``."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveInt
from rich.table import Table

from app.core.cli.terminal import console, counted, error_console, printable, reject_unused, table
from app.core.settings.server import SettingsError
from app.plugins.recording.export.writing import Format, export_inferences, format_of
from app.plugins.recording.inference import InferencePage, RecordedInference, format_timestamp, summarize
from app.plugins.recording.inference_query import NO_TRIAL, InferenceQuery
from app.plugins.recording.query.reader import default_reason, open_recordings
from tasks.inference.error import truncate

_NO_FILTER = InferenceQuery()
_WIDE = 120
"""Columns of a terminal from which times and ids fit on one line."""
_SKIPPED = {
    "coco": "COCO holds only objects in images of known size",
    "yolo": "YOLO holds only objects of one task, and each stored, readable image once",
}


def inferences(
    store: Annotated[str, Parameter(env_var="CHARIOTEER_RECORD")],
    *,
    query: InferenceQuery = _NO_FILTER,
    id: str | None = None,  # noqa: A002
    limit: PositiveInt | None = None,
    after: NonNegativeInt | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    to: Path | None = None,
    format: Format | None = None,  # noqa: A002
    content: Annotated[Literal["records", "truth"], Parameter(name="--with")] = "records",
    images: Annotated[Path | None, Parameter(env_var="CHARIOTEER_RECORD_IMAGES")] = None,
) -> None:
    """Search recorded inferences, or export them.

    Args:
        store: Recording store (the value of --record): a file, or postgresql://USER@HOST/DATABASE; or a JSONL export.
        query: Which inferences.
        id: Print only the inference with this id, as JSON.
        limit: Maximum number of inferences, the newest first; by default 20 to print, all to export.
        after: Start of the page: the value that the previous page ended with.
        json: Print a page as JSON instead of a table.
        to: Export to this file: .parquet, .jsonl, or .json for COCO; with --format yolo, to this new folder.
        format: Format of the export, if the file name does not show it.
        content: What COCO and YOLO have as objects: the records of the answer, or the truth, for training. Without the
            right records as its truth, an inference is left out.
        images: Folder of recorded images (--record-images), for --format yolo.
    """
    if to is not None and (json or id is not None or after is not None):
        raise SettingsError("--to exports all matches and cannot be combined with --json, --id or --after")
    if to is None:
        reject_unused("without --to, the file to export to", {"--format": format, "--with": content != "records"})
    if id is not None and (query != _NO_FILTER or limit is not None or after is not None):
        raise SettingsError("--id prints one inference and cannot be combined with filters, --limit or --after")
    reader = open_recordings(store, images)
    if id is not None:
        console().print_json(msgspec.json.encode(reader.get(id)).decode())
    elif to is not None:
        if query.reason is None:
            query = replace(query, reason=default_reason(store))
        batches: Iterable[Sequence[RecordedInference]] = reader.batches(query, limit)
        export_format = format or format_of(to)
        if content == "truth":
            if export_format not in _SKIPPED:
                raise SettingsError("--with truth is for COCO and YOLO; the other formats always have the truth")
            batches = map(_with_truth, batches)
        written = _export(batches, to, export_format, images, only_truths=content == "truth")
        if not written and query.reason == NO_TRIAL:
            error_console().print("Trials, such as requests of the page, are left out; --reason any includes them")
    else:
        _print_page(reader.page(query, limit or 20, after), json=json)


def _with_truth(batch: Sequence[RecordedInference]) -> Sequence[RecordedInference]:
    """Replace the records by the truth's, with a score of 1; by None without them, which are left out."""
    truths = [item.truth.records if item.truth and item.truth.complete else None for item in batch]
    scored = [None if records is None else [{**record, "score": 1.0} for record in records] for records in truths]
    return [msgspec.structs.replace(item, records=records) for item, records in zip(batch, scored, strict=True)]


def _print_page(page: InferencePage, *, json: bool) -> None:
    terminal = console()
    if json:
        terminal.print_json(msgspec.json.encode(page).decode())
        return
    if not page.inferences:
        terminal.print("No inference matches")
        return
    terminal.print(_table(page.inferences, wide=terminal.width >= _WIDE))
    if page.next is not None:
        terminal.print(f"There are more: --after {page.next}")


def _table(inferences: Sequence[RecordedInference], *, wide: bool) -> Table:
    """Return a row for each inference. The id is never wrapped, so that it can be copied."""
    headings = ("id", "time (UTC)", "model", "found", *(("metadata", "protocol", "ms") if wide else ()))
    found = table(*headings)
    found.columns[0].no_wrap = True
    found.columns[0].min_width = max(len(inference.id) for inference in inferences)
    found.columns[1].no_wrap = wide
    found.columns[-1].justify = "right" if wide else "left"
    for inference in inferences:
        texts = [
            f"{entry.key}={entry.value if isinstance(entry.value, str) else msgspec.json.encode(entry.value).decode()}"
            for entry in inference.metadata
        ]
        found_text = printable(summarize(inference.records or (), inference.task_type))
        cells = (
            printable(inference.id),
            format_timestamp(inference.started)[:19].replace("T", " "),
            printable(inference.model),
            found_text if inference.error is None else f"[red]{printable(inference.error)}[/red]",
            printable(truncate(", ".join(texts))),
            printable(inference.protocol),
            f"{inference.duration / 1000:.1f}",
        )
        found.add_row(*cells[: len(headings)])
    return found


def _export(
    batches: Iterable[Sequence[RecordedInference]],
    to: Path,
    export_format: Format,
    images: Path | None,
    *,
    only_truths: bool,
) -> int:
    stderr = error_console()
    with stderr.status("Exporting ...") as status:

        def shown() -> Iterator[Sequence[RecordedInference]]:
            count = 0
            for batch in batches:
                yield batch
                count += len(batch)
                status.update(f"Exporting ... {counted(count, 'inference')}")

        result = export_inferences(shown(), to, export_format, images)
    stderr.print(f"Wrote {counted(result.written, 'inference')} to {printable(to)}")
    if result.left_out:
        reason = f"{_SKIPPED[export_format]}{'; --with truth needs the complete right records' if only_truths else ''}"
        stderr.print(f"Skipped {counted(result.left_out, 'inference')}: {reason}")
    for change, count in result.changed_objects.items():
        stderr.print(f"{counted(count, 'object')} {change}")
    return result.written
