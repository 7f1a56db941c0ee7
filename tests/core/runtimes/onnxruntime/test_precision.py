"""Whether a processor accelerates a precision is read from its flags."""

from pathlib import Path

import pytest

from app.core.runtimes.onnxruntime.precision import is_accelerated


@pytest.mark.parametrize(
    ("flags", "accelerated"),
    [
        ("flags : fpu avx2", {"fp32"}),
        ("flags : avx512f avx512_vnni", {"fp32", "int8"}),
        ("flags : avx512_bf16 amx_int8", {"fp32", "bf16", "int8"}),
        ("Features : asimd asimddp bf16", {"fp32", "bf16", "int8"}),
    ],
)
def test_precisions_are_accelerated_by_processors_with_their_instructions(
    tmp_path: Path, flags: str, accelerated: set[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(f"model name : any\n{flags}\n")
    precisions = ("fp32", "bf16", "int8")
    assert {name for name in precisions if is_accelerated(name, tmp_path / "cpuinfo")} == accelerated


def test_unknown_processor_is_not_reported_as_slow(tmp_path: Path) -> None:
    assert is_accelerated("bf16", tmp_path / "missing")
