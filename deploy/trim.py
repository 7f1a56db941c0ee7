"""Remove what the server never reads from an installation, and compile what it imports: ``python deploy/trim.py``.

Run it with the Python of the installation. The packages stay importable. This script uses only the standard library.
"""

import compileall
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE = Path(sysconfig.get_path("platlib"))
_UNUSED_FOLDERS = (
    "greenlet/tests", "litestar/testing", "numpy/**/tests", "numpy/distutils", "numpy/f2py", "onnxruntime/datasets",
    "onnxruntime/tools", "onnxruntime/transformers", "sqlalchemy/dialects/m[sy]*sql", "sqlalchemy/dialects/oracle",
    "sqlalchemy/testing",
)  # fmt: skip
_UNUSED_FILES = (
    "**/*.pyi", "**/*.pxd", "**/*.pyx", "greenlet/*.cpp", "numpy/**/*.a", "numpy/**/*.h",
    # For programs in C; Python's module contains the same code.
    "onnxruntime/capi/libonnxruntime.so.*",
)  # fmt: skip
_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<32xQ14xHH6x")
_OFFSET_OF_SECTION_TABLE, _COUNT_OF_SECTIONS = 40, 60
_PROGRAM_HEADER = struct.Struct("<8xQ16xQ16x")
_LEAST_SAVED = 64 * 1024


def main() -> None:
    """Remove files and symbols; compile what a server of the demo imports, and everything if there are extras."""
    for pattern in _UNUSED_FOLDERS:
        for folder in SITE.glob(pattern):
            shutil.rmtree(folder)
    for pattern in _UNUSED_FILES:
        for file in SITE.glob(pattern):
            file.unlink()
    for library in SITE.rglob("*.so*"):
        remove_symbols(library)
    compile_imports()
    if os.environ.get("EXTRAS"):
        compileall.compile_dir(SITE, quiet=2, workers=0)


def remove_symbols(library: Path) -> None:
    """Cut an ELF library after the bytes that the loader maps: what follows are symbols for debuggers.

    The format is that of elf(5), for 64 bits.
    """
    with library.open("r+b") as file:
        header = file.read(_FILE_HEADER.size)
        if not header.startswith(_ELF64_LITTLE_ENDIAN):
            return
        first, size, count = _FILE_HEADER.unpack(header)
        file.seek(first)
        table = file.read(size * count)
        segments = (_PROGRAM_HEADER.unpack_from(table, size * index) for index in range(count))
        end = max(start + length for start, length in segments)
        if library.stat().st_size - end >= _LEAST_SAVED:
            file.truncate(end)
            # No section is left: their table has the offset 0, and no entries.
            file.seek(_OFFSET_OF_SECTION_TABLE)
            file.write(bytes(8))
            file.seek(_COUNT_OF_SECTIONS)
            file.write(bytes(4))


def compile_imports() -> None:
    """Start a server of all demo models that records, so that Python writes the bytecode of what it imports."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--port", "0", "--grpc-port", "0", "--page", "--record", f"{folder}/records.db"]
        command = [Path(sys.prefix, "bin", "charioteer"), "serve", "--demo", "--log-format", "json", *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
            for line in server.stderr or ():
                if '"server ready"' in line:
                    server.terminate()
    if server.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {server.returncode}")


if __name__ == "__main__":
    main()
