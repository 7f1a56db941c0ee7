"""The descriptors of the gRPC protocols, and their `.proto` files."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.server_process import ROOT

FOLDERS = (ROOT / "app" / "core" / "proto", *(ROOT / "app" / "plugins").glob("*/proto"))
SOURCES = sorted(file for folder in FOLDERS for file in folder.glob("*.proto"))


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_descriptor_is_compiled_from_its_proto_file(source: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled.binpb"
    proto = str(source.relative_to(ROOT))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={compiled}", proto]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    assert source.with_suffix(".binpb").read_bytes() == compiled.read_bytes(), "run `make proto`"


def test_each_descriptor_has_one_proto_file() -> None:
    compiled = sorted(file for folder in FOLDERS for file in folder.glob("*.binpb"))
    assert [source.with_suffix(".binpb") for source in SOURCES] == compiled
    assert "inference" in {source.stem for source in SOURCES}
