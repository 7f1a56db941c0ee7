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
from app.recording.export.rows import best_finding
from app.recording.inference import RecordedInference
from app.recording.moments import iso_moment
from app.recording.query import QueryText, read_cursor, read_query
from app.settings.server import SettingsError
from tasks.exchange.error import shortened

if TYPE_CHECKING:
    from app.recording.query import InferenceQuery
    from app.recording.query_reader import Reader

__all__ = ("inferences",)

_Format = Literal["parquet", "coco", "jsonl", "csv"]
_Score = Annotated[float | None, Parameter(validator=Number(gte=0, lte=1))]
_LARGEST_POLYGON = 16 * 1024 * 1024


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
    """Look through what --record recorded, or export it.

    Args:
        store: What --record was given: a file, or postgresql://USER@HOST/DATABASE.
        where: A condition on metadata, such as 'camera = "north"' or 'pose.yaw > 1.5'; may be repeated.
        since: Not older than this: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago.
        until: Older than this.
        model: The model's name.
        protocol: The protocol's name, such as chariot-v2-kserve.
        task_type: The model's task type, such as OBJECT_DETECTION.
        label: Something of this label was found.
        min_score: Something (of the label) was found with this score or a better one.
        max_score: The best that was found (of the label) has this score or a worse one.
        error: Why there was no answer, such as model_failed; any, or none.
        request_id: The value of X-Request-ID.
        base_id: Chariot's base id.
        digest: SHA-256 of the picture.
        near: Within so many kilometres of a place: LATITUDE,LONGITUDE,KILOMETRES.
        box: Within SOUTH,WEST,NORTH,EAST; across the antimeridian where west is greater than east.
        polygon: Within "LAT,LON LAT,LON LAT,LON ...", GeoJSON, or a file of either.
        id: Show the one inference of this id, as JSON, and nothing else.
        limit: At most so many, the newest; 20 when they are shown, all when they are exported.
        after: Where the page before ended.
        json: Print a page as JSON instead of a table.
        to: Export to this file: .parquet, .csv, .jsonl, or .json for COCO.
        format: The file's format, where its name does not tell.
    """
    query = read_query(
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
        raise SettingsError("--to exports everything that matches, and does not go with --json, --id or --after")
    reader = _reader(store)
    try:
        if id is not None:
            _show_one(reader, id)
        elif to is not None:
            _export(reader, query, to, format, limit)
        else:
            _show(reader, query, limit or 20, None if after is None else read_cursor(after), json=json)
    finally:
        reader.close()


def _reader(store: str) -> "Reader":
    from app.recording.address import read_address
    from app.recording.query_reader import Reader

    return Reader(read_address(store))


def _polygon(text: str | None) -> str | None:
    """A polygon, or what is in the file of that name."""
    if text is None or text.lstrip().startswith("{") or len(text) > 1000:
        return text
    file = Path(text)
    if not file.is_file():
        return text
    if file.stat().st_size > _LARGEST_POLYGON:
        sys.exit(f"charioteer: polygon: Expected a file of at most {_LARGEST_POLYGON} bytes, got {file}")
    return file.read_text(encoding="utf-8", errors="replace")


def _show_one(reader: "Reader", name: str) -> None:
    found = reader.one(name)
    if found is None:
        sys.exit(f"charioteer: id: There is no inference {name}")
    console().print_json(msgspec.json.encode(found).decode())


def _show(reader: "Reader", query: "InferenceQuery", limit: int, after: int | None, *, json: bool) -> None:
    page = reader.page(query, limit, after)
    printed = console()
    if json:
        shown = {"inferences": page.inferences, "next": None if page.next is None else str(page.next)}
        printed.print_json(msgspec.json.encode(shown).decode())
        return
    if not page.inferences:
        printed.print("No inference matches")
        return
    printed.print(_table(page.inferences))
    if page.next is not None:
        printed.print(f"There are more: --after {page.next}")


def _table(found: Sequence[RecordedInference]) -> Table:
    table = Table("time (UTC)", "model", "protocol", "ms", "found", "metadata", "id")
    table.columns[3].justify = "right"
    table.columns[0].no_wrap = table.columns[6].no_wrap = True
    for each in found:
        table.add_row(
            iso_moment(each.started)[:19].replace("T", " "),
            escape(each.model),
            escape(each.protocol),
            f"{each.duration / 1000:.1f}",
            escape(_found(each)) if each.error is None else f"[red]{escape(each.error)}[/red]",
            escape(shortened(", ".join(f"{entry.key}={_value(entry.value)}" for entry in each.metadata))),
            escape(each.id),
        )
    return table


def _found(inference: RecordedInference) -> str:
    """Such as "3 car, 1 dog"; the best of classes; an answer's text where there are no labels."""
    records = inference.records or ()
    if inference.task_type.endswith("CLASSIFICATION") and records:
        label, score = best_finding(records)
        return f"{label} {score:.2f}" if score is not None else str(label)
    labels = Counter(str(each["label"]) for each in records if "label" in each)
    if labels:
        return shortened(", ".join(f"{count} {label}" for label, count in labels.most_common(5)))
    texts = [str(each[name]) for each in records for name in ("answer", "generated_text", "text") if name in each]
    return shortened(texts[0]) if texts else f"{len(records)} records" if records else "nothing"


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _export(reader: "Reader", query: "InferenceQuery", to: Path, name: _Format | None, limit: int | None) -> None:
    from app.recording.export.writing import Format, export, format_of

    form = Format(name) if name else format_of(to)
    told = Console(stderr=True)
    with told.status("Exporting ...") as status:
        done = export(
            reader.batches(query, limit), to, form, lambda count: status.update(f"Exporting ... {count:,} inferences")
        )
    told.print(f"Wrote {done.written:,} inferences to {escape(str(to))}", soft_wrap=True)
    if done.left_out:
        told.print(
            f"{done.left_out:,} are left out: COCO has a place only for what was found in pictures of known size"
        )
