"""The models that OpenAI's clients can use, which KServe V1 lists too: both use the path ``/v1/models``."""

from collections.abc import Sequence
from functools import partial

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.hooks import Host
from app.core.protocols.kserve_v1.wire import ListedModels, WireModel
from tasks.inference.tensor import Datatype, TensorSpec

_EMBEDDING = "embedding"


def listed_models(engine: Engine) -> Sequence[WireModel]:
    """Return the ready models that answer with text or with vectors, by name."""
    names = {
        registration.source.name
        for registration in engine.registry.registrations
        if registration.servable is not None and is_listed(registration.servable)
    }
    return [WireModel(id=name) for name in sorted(names)]


def is_listed(servable: Servable) -> bool:
    """Return whether a model answers with text or with vectors."""
    return returns_texts(servable) or embedding_output(servable) is not None


def returns_texts(servable: Servable) -> bool:
    """Return whether a model answers with text."""
    return servable.description.task_type.returns == "texts"


def embedding_output(servable: Servable) -> TensorSpec | None:
    """Return the output that holds one vector for each input; None if the model has none.

    Such a model takes one BYTES tensor, of texts or encoded images. It has one vector of floats, or calls one of them
    "embedding".
    """
    if servable.description.task_type.returns != "tensors" or len(servable.inputs) != 1:
        return None
    (spec,) = servable.inputs
    if spec.datatype is not Datatype.BYTES or not all(size in (-1, 1) for size in spec.shape):
        return None
    vectors = [spec for spec in servable.outputs if spec.datatype.kind == "f" and vector_length(spec.shape) != 0]
    if len(vectors) > 1:
        vectors = [spec for spec in vectors if spec.name == _EMBEDDING]
    return vectors[0] if len(vectors) == 1 else None


def vector_length(shape: Sequence[int]) -> int:
    """Return n for the shape [n], or a batch of [n] with any dimensions of size 1; -1 if n is free, else 0."""
    lengths = [size for size in shape[1:] if size != 1] if len(shape) > 1 else [size for size in shape if size > 1]
    return lengths[0] if len(lengths) == 1 else 0


def start(host: Host) -> None:
    """Provide the list."""
    host.provide(ListedModels, partial(listed_models, host.engine))
