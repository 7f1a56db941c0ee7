"""Reject what the protocol has and this server does not support."""

from collections.abc import Mapping

import msgspec

from tasks.inference.error import ErrorKind, InferenceError

_ALLOWED: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
"""The accepted values of members that are not supported, besides null."""

UNSUPPORTED_PARAMETER = "unsupported_parameter"


class UnsupportedError(InferenceError):
    """The member at `path` has a value that this server does not support. `code` is the code in the body."""

    def __init__(self, message: str, path: str, code: str) -> None:
        super().__init__(ErrorKind.INVALID_REQUEST, message, path)
        self.code = code


def check_supported(wire: msgspec.Struct) -> None:
    """Reject a member with a value that the server does not honour. Raise UnsupportedError naming the member."""
    for name, allowed in _ALLOWED.items():
        value = getattr(wire, name, None)
        if value is not None and value not in allowed:
            values = " or ".join(msgspec.json.encode(choice).decode() for choice in allowed) or "null"
            message = f"This server does not support {name}; expected {values}"
            raise UnsupportedError(message, name, UNSUPPORTED_PARAMETER)
