"""What every protocol's request is turned into. No conversions live here: each protocol has its own `decode`."""

from collections.abc import Mapping

import msgspec

from tasks.exchange.tensor import InputTensor

__all__ = ("InferenceRequest",)


class InferenceRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of one model.

    Attributes:
        id: the sender's name for the request; protocols that always answer with one have filled it in.
        model_name: a name the registry can resolve.
        model_version: a version of it, or None for the latest.
        inputs: in the order of the wire.
        parameters: request-wide parameters, the defaults of each input's own.
    """

    id: str
    model_name: str
    model_version: str | None = None
    inputs: tuple[InputTensor, ...]
    parameters: Mapping[str, object] = {}
