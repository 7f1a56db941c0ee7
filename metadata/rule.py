"""The rule for the parameters of an output."""

from collections.abc import Mapping

from metadata.entry import METADATA_PARAMETER

__all__ = ("output_parameters",)

_INPUT_SUFFIX = f"].{METADATA_PARAMETER}"


def output_parameters(parameters: Mapping[str, object], /) -> Mapping[str, object]:
    """Return the parameters of the output for an input with `parameters`.

    These are the client's metadata, unchanged and unread, because the platform matches and stores them. An output that
    answers several inputs returns the metadata of each as ``inputs[<index>].metadata``.
    """
    output: dict[str, object] = {}
    for name, value in parameters.items():
        if name == METADATA_PARAMETER or name.endswith(_INPUT_SUFFIX):
            output[name] = value  # noqa: PERF403  a comprehension is one more call for each request
    return output
