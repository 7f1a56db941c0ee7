"""Check the precision of a model against its graph and the processor, and describe it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.core.settings.model import ModelError, ModelSource, read_json_file
from metadata.model import Fact, Origin

PROVENANCE_FILE = "quantization.json"
_QUANTIZED_OPERATOR = b"DequantizeLinear"
_CHUNK_BYTES = 1 << 20
_CPU_INFO = Path("/proc/cpuinfo")
_CPU_FLAGS: Mapping[str, frozenset[str]] = {
    "bf16": frozenset({"amx_bf16", "avx512_bf16", "bf16"}),
    "int8": frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "asimddp", "i8mm"}),
}
"""The flags of processors with instructions for a precision, as Linux names them; x86 first, then Arm."""


class QuantizationVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How the answers of a quantised graph differ from the original's, on `images` images and a `processor`.

    `changed` is the share of the `finding`, 0..1.
    """

    images: int
    changed: float
    finding: str
    processor: str


class QuantizationProvenance(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a quantised graph, in `PROVENANCE_FILE` beside it, with the number of images of the calibration.

    `images_sha256` is the digest of the sorted digests of these images, one a line. Files of version 0.2 have no
    `verdict`.
    """

    source: str
    source_version: str
    source_sha256: str
    images: int
    images_sha256: str
    tool: str
    written_by: str
    verdict: QuantizationVerdict | None = None


def is_accelerated(precision: str, cpu_info: Path = _CPU_INFO) -> bool:
    """Return whether this processor has instructions for `precision`; True where Linux does not list its flags."""
    try:
        flags = {flag for line in cpu_info.read_text().splitlines() for flag in line.partition(":")[2].split()}
    except OSError:
        return True
    return precision not in _CPU_FLAGS or bool(flags & _CPU_FLAGS[precision])


def describe_precision(source: ModelSource, graph: Path, *, accelerated: bool) -> Fact:
    """Return the precision of a model as a fact; `accelerated` says whether the device has instructions for it.

    Raise ModelError if int8 is declared for a graph that is not quantised.
    """
    precision = source.settings.precision
    value: str = precision
    if precision == "int8":
        if not _is_quantized(graph):
            raise ModelError(f'{graph}: "precision": "int8" needs a quantised graph; make one with charioteer quantize')
        file = graph.parent / PROVENANCE_FILE
        if file.is_file():
            origin = read_json_file(file, QuantizationProvenance)
            value = f"int8, made of version {origin.source_version} with {origin.images} images by {origin.tool}; "
            verdict = origin.verdict
            value += (
                f"verified: {verdict.finding}, on {verdict.processor}" if verdict else "its answers were not verified"
            )
    if not accelerated:
        value += "; this machine has no instructions for it, and gains nothing"
    return Fact("precision", value, Origin.CONVENTION if precision == "fp32" else Origin.DECLARED)


def _is_quantized(graph: Path) -> bool:
    """Return whether the file names the operator; its text is stored as it is."""
    with graph.open("rb") as file:
        tail = b""
        while chunk := file.read(_CHUNK_BYTES):
            if _QUANTIZED_OPERATOR in tail + chunk:
                return True
            tail = chunk[-len(_QUANTIZED_OPERATOR) :]
    return False
