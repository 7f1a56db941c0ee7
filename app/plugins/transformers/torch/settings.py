"""Settings of one model."""

from typing import Annotated, Literal

import msgspec


class TransformersSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the `transformers` runtime runs a model.

    Attributes:
        device: the device in torch's notation, such as `cpu` or `cuda:1`; `auto` is a GPU if there is one.
        dtype: of the weights and the computation; `auto` is float32 on a CPU, and that of the files on a GPU.
    """

    device: Annotated[str, msgspec.Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
