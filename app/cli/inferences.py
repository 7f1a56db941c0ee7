"""``charioteer inferences``."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import console
from app.recording.export.line_formats import best_prediction
from app.recording.inference import RecordedInference
from app.recording.query.query import QueryText, parse_cursor, parse_query
from app.recording.timestamps import format_timestamp
from app.settings.server import SettingsError
from tasks.inference.error import truncate

if TYPE_CHECKING:
    from app.recording.query.query import InferenceQuery
    from app.recording.query.reader import RecordingReader

__all__ = ("inferences",)

_Format = Literal["parquet", "coco", "jsonl", "csv"]
_Score = Annotated[float | None, Parameter(validator=Number(gte=0, lte=1))]
_MAX_POLYGON_BYTES = 16 * 1024 * 1024


def inferences(
    store: Annotated[str, Parameter(env_var="CHARIOTEER_RECORD")],
    *,
    where: Annotated[list[str] | None, Parameter(negative="")] = None,
    since: str | None = None,
    until: str | None = None,
    model: str | None = None,
    protocol: str | None = None,
    task_type: str | None = None,
    label: str | None = None,
    min_score: _Score = None,
    max_score: _Score = None,
    error: str | None = None,
    request_id: str | None = None,
    base_id: str | None = None,
    digest: str | None = None,
    near: str | None = None,
    box: str | None = None,
    polygon: str | None = None,
    id: str | None = None,  # noqa: A002
    limit: PositiveInt | None = None,
    after: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    to: Path | None = None,
    format: _Format | None = None,  # noqa: A002
) -> None:
    """Search recorded inferences, or export them.

    Args:
        store: Recording store (the value of --record): a file, or postgresql://USER@HOST/DATABASE.
        where: Condition on metadata, such as 'camera = "north"' or 'pose.yaw > 1.5'; may be repeated.
        since: From this time on: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago.
        until: Before this time.
        model: Model name.
        protocol: Protocol name, such as chariot-v2-kserve.
        task_type: Task type of the model, such as OBJECT_DETECTION.
        label: The model found this label.
        min_score: A finding (of the label) has at least this score.
        max_score: No finding (of the label) has a higher score.
        error: Kind of error, such as model_failed; or any, or none.
        request_id: Value of X-Request-ID.
        base_id: Chariot base id.
        digest: SHA-256 of the image.
        near: Within a distance of a position: LATITUDE,LONGITUDE,KILOMETRES.
        box: Within SOUTH,WEST,NORTH,EAST; crosses the antimeridian if WEST is greater than EAST.
        polygon: Within "LAT,LON LAT,LON LAT,LON ...", GeoJSON, or a file of either.
        id: Print only the inference with this id, as JSON.
        limit: Maximum number of inferences, the newest first; by default 20 to print, all to export.
        after: Start of the page: the value that the previous page ended with.
        json: Print a page as JSON instead of a table.
        to: Export to this file: .parquet, .csv, .jsonl, or .json for COCO.
        format: Format of the export, if the file name does not show it.
    """
    query = parse_query(
        QueryText(
            since=since,
            until=until,
            model=model,
            protocol=protocol,
            task_type=task_type,
            request_id=request_id,
            base_id=base_id,
            label=label,
            min_score=min_score,
            max_score=max_score,
            error=error,
            digest=digest,
            where=where or (),
            near=near,
            box=box,
            polygon=_polygon(polygon),
        )
    )
    if to is not None and (json or id is not None or after is not None):
        raise SettingsError("--to exports all matches and cannot be combined with --json, --id or --after")
    reader = _reader(store)
    try:
        if id is not None:
            _print_one(reader, id)
        elif to is not None:
            _export(reader, query, to, format, limit)
        else:
            _print_page(reader, query, limit or 20, None if after is None else parse_cursor(after), json=json)
    finally:
        reader.close()


def _reader(store: str) -> "RecordingReader":
    from app.recording.dsn import parse_dsn
    from app.recording.query.reader import RecordingReader

    return RecordingReader(parse_dsn(store))


def _polygon(text: str | None) -> str | None:
    """Return a polygon, from the file called `text` if there is one."""
    if text is None or text.lstrip().startswith("{") or len(text) > 1000:
        return text
    file = Path(text)
    if not file.is_file():
        return text
    if file.stat().st_size > _MAX_POLYGON_BYTES:
        sys.exit(f"charioteer: polygon: Expected a file of at most {_MAX_POLYGON_BYTES} bytes, got {file}")
    return file.read_text(encoding="utf-8", errors="replace")


def _print_one(reader: "RecordingReader", name: str) -> None:
    inference = reader.get(name)
    if inference is None:
        sys.exit(f"charioteer: id: There is no inference {name}")
    console().print_json(msgspec.json.encode(inference).decode())


def _print_page(
    reader: "RecordingReader", query: "InferenceQuery", limit: int, after: int | None, *, json: bool
) -> None:
    page = reader.page(query, limit, after)
    terminal = console()
    if json:
        document = {"inferences": page.inferences, "next": None if page.next is None else str(page.next)}
        terminal.print_json(msgspec.json.encode(document).decode())
        return
    if not page.inferences:
        terminal.print("No inference matches")
        return
    terminal.print(_table(page.inferences))
    if page.next is not None:
        terminal.print(f"There are more: --after {page.next}")


def _table(inferences: Sequence[RecordedInference]) -> Table:
    table = Table("time (UTC)", "model", "protocol", "ms", "found", "metadata", "id")
    table.columns[3].justify = "right"
    table.columns[0].no_wrap = table.columns[6].no_wrap = True
    for inference in inferences:
        table.add_row(
            format_timestamp(inference.started)[:19].replace("T", " "),
            escape(inference.model),
            escape(inference.protocol),
            f"{inference.duration / 1000:.1f}",
            escape(_summary(inference)) if inference.error is None else f"[red]{escape(inference.error)}[/red]",
            escape(truncate(", ".join(f"{entry.key}={_value(entry.value)}" for entry in inference.metadata))),
            escape(inference.id),
        )
    return table


def _summary(inference: RecordedInference) -> str:
    """Summarize the records: "3 car, 1 dog" for objects, the best class, or the start of a text."""
    records = inference.records or ()
    if inference.task_type.endswith("CLASSIFICATION") and records:
        label, score = best_prediction(records)
        return f"{label} {score:.2f}" if score is not None else str(label)
    labels = Counter(str(record["label"]) for record in records if "label" in record)
    if labels:
        return truncate(", ".join(f"{count} {label}" for label, count in labels.most_common(5)))
    texts = [str(record[name]) for record in records for name in ("answer", "generated_text", "text") if name in record]
    return truncate(texts[0]) if texts else f"{len(records)} records" if records else "nothing"


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _export(
    reader: "RecordingReader", query: "InferenceQuery", to: Path, name: _Format | None, limit: int | None
) -> None:
    from app.recording.export.writing import Format, export, format_of

    export_format = Format(name) if name else format_of(to)
    error_console = Console(stderr=True)
    with error_console.status("Exporting ...") as status:
        result = export(
            reader.batches(query, limit),
            to,
            export_format,
            lambda count: status.update(f"Exporting ... {count:,} inferences"),
        )
    error_console.print(f"Wrote {result.written:,} inferences to {escape(str(to))}", soft_wrap=True)
    if result.left_out:
        error_console.print(f"Skipped {result.left_out:,} inferences: COCO holds only objects in images of known size")
