"""A recorded inference in a form that does not depend on the protocol."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from metadata.request import MetadataEntry
from tasks.inference.error import truncate
from tasks.task import BEST_ONLY

# Checked when an edited export is read: the integers of the tables and of Parquet.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Count64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Time = Annotated[int, msgspec.Meta(ge=-(2**63) + 1, le=2**63 - 1)]
DIGEST = re.compile("[0-9a-f]{64}")
"""The file name of an image. It cannot contain a path that leaves the folder."""
_MAX_NUMBER = 1e100
"""Maximum number of a record. The area of a larger box may be infinite."""


class RecordedImage(msgspec.Struct, frozen=True, kw_only=True):
    """The input image of an inference.

    Attributes:
        digest: SHA-256 of the encoded file as it was sent, in hexadecimal. For raw pixels, it is the
            digest of ``<width>x<height>``, a line feed, and the 8-bit RGB pixels.
        width: in pixels, of the upright image.
        height: in pixels, of the upright image.
        size: size in bytes of the encoded file, or of the pixels.
        kept: whether the file is stored with the records, under its digest.
    """

    digest: str
    width: _Count
    height: _Count
    size: _Count64
    kept: bool = False


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The truth of one inference: the right answer, or only whether its answer was right.

    Attributes:
        verdict: whether the answer was right.
        records: the right answer, in the form of the inference's records, without scores; None for a verdict alone.
        complete: whether `records` has every object of the image.
        source: what it comes from, such as ``api`` or ``coco``.
        comment: a remark for people.
        time: when it was written, in microseconds since 1970 (UTC).
    """

    verdict: Literal["right", "wrong"]
    records: Sequence[Mapping[str, object]] | None = None
    complete: bool = False
    source: str = ""
    comment: str = ""
    time: _Time = 0


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Why an inference is recorded, and how likely that was: fields of `RecordedInference`."""

    reason: str | None = None
    probability: float | None = None


class RecordedInference(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of one request with its answer, or a rejected request.

    Attributes:
        id: the event id with the indexes of the input and the sample: ``<hex>-<input>-<datum>``.
        base_id: Chariot's base id, if the platform sent one.
        request_id: the client's id or a generated one; all samples of one request share it.
        input: index of the input in the request.
        datum: index of the sample in that input.
        protocol: the wire protocol's name.
        model: the requested model.
        version: the version that answered, empty when none did.
        task_type: the task of that model, empty when none answered.
        started: when the request arrived, in microseconds since 1970 (UTC).
        duration: from arrival to the end, in microseconds.
        parameters: parameters of the request and the input, without metadata.
        metadata: the client's custom metadata that could be parsed.
        records: the answer in the form of `Prediction.records`: boxes in pixels of the upright original image,
            oriented boxes as fractions of its sides; None for a rejected request. With an error, the partial answer.
        image: the input image, None for other inputs.
        error: the `ErrorKind` value of the error, None for an answer.
        message: the error message that the client received.
        explanation: whether the client requested an explanation.
        reason: the name of the rule that selected it, or ``trial``; None for the random sample (``--record-sample``).
        probability: the probability, 0..1, with which requests like this one are recorded; None if it is unknown.
        truth: its truth, if it has one.
    """

    id: str
    base_id: str | None = None
    request_id: str = ""
    input: _Count = 0
    datum: _Count = 0
    protocol: str
    model: str
    version: str = ""
    task_type: str = ""
    started: _Time
    duration: _Count64
    parameters: Mapping[str, object] = {}
    metadata: Sequence[MetadataEntry] = ()
    records: Sequence[Mapping[str, object]] | None = None
    image: RecordedImage | None = None
    error: str | None = None
    message: str = ""
    explanation: bool = False
    reason: str | None = None
    probability: float | None = None
    truth: Truth | None = None


def check_numbers(inference: RecordedInference) -> RecordedInference:
    """Return an inference of an edited export, whose types were checked, if exports can compute with its numbers.

    Raise ValueError with the field.
    """
    for index, entry in enumerate(inference.metadata):
        if isinstance(entry.value, float) and not math.isfinite(entry.value):
            raise ValueError(f"Expected a finite number - at `$.metadata[{index}].value`")
    truth = inference.truth.records if inference.truth else None
    for field, records in (("records", inference.records), ("truth.records", truth)):
        for index, record in enumerate(records or ()):
            for name, value in record.items():
                if isinstance(value, int | float) and abs(value) > _MAX_NUMBER:
                    raise ValueError(f"Expected a number within {_MAX_NUMBER:g} of 0 - at `$.{field}[{index}].{name}`")
    return inference


def image_columns(image: RecordedImage | None) -> dict[str, Any]:
    """Return the columns ``image_*`` of a row; all are None without an image."""
    return {f"image_{name}": image and getattr(image, name) for name in RecordedImage.__struct_fields__}


def image_from_columns(row: Mapping[Any, Any]) -> RecordedImage | None:
    """Return the image in the columns ``image_*`` of a row, or None if it has none."""
    fields = {name: row[f"image_{name}"] for name in RecordedImage.__struct_fields__}
    return None if fields["digest"] is None else RecordedImage(**fields)


def summarize(records: Sequence[Mapping[str, object]], task_type: str) -> str:
    """Summarize the records of an answer: "3 car, 1 dog" for objects, the best class, or the start of a text."""
    if task_type in BEST_ONLY and records:
        # The best class comes first.
        best = (records[0][name] for name in ("label", "score") if name in records[0])
        return " ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in best)
    labels = Counter(str(record["label"]) for record in records if "label" in record)
    if labels:
        return truncate(", ".join(f"{count} {label}" for label, count in labels.most_common(5)))
    texts = [str(record[name]) for record in records for name in ("answer", "generated_text", "text") if name in record]
    if texts:
        return truncate(texts[0])
    return f"{len(records)} record{'' if len(records) == 1 else 's'}" if records else "nothing"


class InferencePage(msgspec.Struct, frozen=True):
    """A page of matches, newest first, and the cursor of the next page; None for the last page."""

    inferences: Sequence[RecordedInference]
    next: str | None


Batches = Iterable[Sequence[RecordedInference]]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    written: int  # number of inferences in the file
    left_out: int = 0  # number of inferences that the format cannot represent
    # Number of objects that are missing or incomplete in the file, by the reason for the user.
    changed_objects: Mapping[str, int] = {}


def format_timestamp(microseconds: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC, such as ``2026-11-05T12:30:00.000000Z``."""
    # Edited exports may have times that are too large for `datetime`.
    return f"{np.datetime64(microseconds, 'us')}Z"
