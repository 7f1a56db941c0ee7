"""One inference as it is kept: the neutral exchange, the same whatever protocol it came over."""

from collections.abc import Mapping, Sequence

import msgspec

from metadata.entry import MetadataEntry

__all__ = ("RecordedImage", "RecordedInference")


class RecordedImage(msgspec.Struct, frozen=True, kw_only=True):
    """The picture that an inference was about.

    Attributes:
        digest: SHA-256 of the encoded file as it was sent, in hexadecimal. Where pixels were sent, it is of
            ``<width>x<height>``, a line feed, and the pixels as RGB, eight bits each.
        width: in pixels, upright.
        height: in pixels, upright.
        size: bytes of the encoded file, or of the pixels.
        kept: whether the file itself is kept beside the records, under its digest.
    """

    digest: str
    width: int
    height: int
    size: int
    kept: bool = False


class RecordedInference(msgspec.Struct, frozen=True, kw_only=True):
    """One datum of one request, and what was answered; or a request that was refused as a whole.

    Attributes:
        id: the event's id, and behind a dash the input's and the datum's place: ``<hex>-<input>-<datum>``.
        base_id: Chariot's base id, where the platform sent one.
        request_id: the sender's or a made one; all data of one request share it.
        input: which input of the request.
        datum: which datum of that input.
        protocol: the wire protocol's name.
        model: the model that was asked.
        version: the version that answered, empty when none did.
        task_type: of that model, empty when none answered.
        started: when the request arrived, in microseconds since 1970 (UTC).
        duration: from arrival to the end, in microseconds.
        parameters: of the request and the input, its metadata aside.
        metadata: the sender's custom metadata, as far as it could be read.
        records: what was answered, as `Prediction.records` has it: boxes in pixels of the upright original image,
            oriented boxes as fractions of its sides; None for a refusal. Beside an error, what was said before it.
        image: the picture, None for what is about none.
        error: why there is no answer, None where there is one: an `ErrorKind`'s value.
        message: the sentence that the sender got then.
        explanation: whether reasons were asked for beside the answer.
    """

    id: str
    base_id: str | None = None
    request_id: str = ""
    input: int = 0
    datum: int = 0
    protocol: str
    model: str
    version: str = ""
    task_type: str = ""
    started: int
    duration: int
    parameters: Mapping[str, object] = {}
    metadata: Sequence[MetadataEntry] = ()
    records: Sequence[Mapping[str, object]] | None = None
    image: RecordedImage | None = None
    error: str | None = None
    message: str = ""
    explanation: bool = False
