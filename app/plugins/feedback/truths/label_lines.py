"""Read one label a line, as JSON."""

from collections.abc import Mapping

from app.core.wire.json_body import read_json
from app.plugins.feedback.truths.matching import Label
from app.plugins.feedback.truths.right_answer import RightAnswer, records_by_kind
from tasks.inference.error import invalid
from tasks.inference.limits import too_large

MAX_BYTES = 1_000_000
"""Maximum size of one truth."""


class LabelLine(RightAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of ``POST /inferences/truths``: a right answer, and one or more ways to find its inference.

    Attributes:
        id: id of the inference.
        request_id: X-Request-ID of a request with a single sample.
        digest: SHA-256 of the image file.
        metadata: ``{"file_name": ...}``, the name of the image in the metadata of its request.
    """

    id: str | None = None
    request_id: str | None = None
    digest: str | None = None
    metadata: Mapping[str, str] = {}


def read_line(line: bytes) -> Label:
    """Return the label in one line.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field.
    """
    if len(line) > MAX_BYTES:
        raise too_large(MAX_BYTES, "bytes in a truth", len(line), "")
    answer = read_json(line, LabelLine, subject="line")
    name = answer.metadata.get("file_name")
    if not (answer.id or answer.request_id or answer.digest or name):
        raise invalid('Expected id, request_id, digest or metadata {"file_name": ...}')
    return Label(
        id=answer.id,
        request_id=answer.request_id,
        digest=answer.digest,
        name=name,
        answer=answer,
        records=records_by_kind(answer),
    )
