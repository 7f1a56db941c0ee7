"""Read the JSON object in the ``metadata_props`` of newer RF-DETR exports."""

import msgspec

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata, read_metadata
from app.core.runtimes.onnxruntime.images.preprocessing import pillow_filter
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSource

_KEY = "rfdetr_inference"
"""``METADATA_KEY`` of ``rfdetr/export/_runtime/metadata.py``."""


class RfDetrMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of the JSON object. The numbers of the classes have the gaps of the training data."""

    class_id_to_name: dict[int, str] = {}
    means: tuple[float, float, float] | None = None
    stds: tuple[float, float, float] | None = None
    resize_interpolation: str | None = None
    resize_antialias: bool | None = None


def describe(source: ModelSource, session: GraphSession) -> ExportMetadata | None:
    """Return the metadata of a graph with such an object, their `contract`. Raise ModelError if it cannot be read."""
    del source
    text = session.metadata.get(_KEY)
    if text is None:
        return None
    try:
        contract = msgspec.json.decode(text, type=RfDetrMetadata)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelError(f"{session.file}: metadata {_KEY!r} cannot be read: {error}") from None
    names = tuple(contract.class_id_to_name[number] for number in sorted(contract.class_id_to_name))
    known = read_metadata(session.file, session.metadata)
    return msgspec.structs.replace(
        known,
        names=known.names or names or None,
        interpolation=known.interpolation or pillow_filter(contract.resize_interpolation),
        antialias=contract.resize_antialias if known.antialias is None else known.antialias,
        contract=contract,
    )
