"""Write the locks for deploy/install.sh: every package with its version and its digests (``make lock``).

``requirements/base.txt`` has what the server needs on every machine and every supported Python, ``<extra>.txt`` the
additional packages of an extra, and ``build.txt`` the tools that build the server's wheel and its guide. All files come
from one resolution, so that they can be combined. They name no registry.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("drift", "evaluate", "jwt", "openvino", "otel", "parquet", "postgres", "quantize", "signatures", "torch")
"""The extras that can be built into an image."""
_HEADER = "# Made by `make lock`; not edited by hand.\n"
_OPTIONS = (
    "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header", "--python-version", "3.11",
)  # fmt: skip


def main() -> None:
    """Resolve all requirements together, and write each file."""
    project = ROOT / "pyproject.toml"
    settings = tomllib.loads(project.read_text())
    optional = settings["project"]["optional-dependencies"]
    extras = [extra for extra in EXTRAS if extra in optional]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = folder / "build.in"
        build.write_text("\n".join([*settings["build-system"]["requires"], *optional["docs"]]))
        everything = folder / "everything.txt"
        compile_(everything, str(project), *(f"--extra={extra}" for extra in extras))
        base = blocks(compile_(folder / "base.txt", str(project), f"--constraint={everything}"))
        write("base", base)
        for extra in extras:
            found = compile_(folder / f"{extra}.txt", str(project), f"--extra={extra}", f"--constraint={everything}")
            write(extra, [block for block in blocks(found) if block not in base])
        write("build", blocks(compile_(folder / "build.txt", str(build))))


def compile_(output: Path, *arguments: str) -> str:
    """Resolve requirements with uv into `output`, and return its text."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *_OPTIONS, f"--output-file={output}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)
    return output.read_text()


def blocks(text: str) -> list[str]:
    """Split a lock into its requirements, each with the lines of its digests."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[0].isspace():
            found[-1] += line
        else:
            found.append(line)
    return found


def write(name: str, requirements: list[str]) -> None:
    """Write one lock file."""
    (ROOT / "deploy" / "requirements" / f"{name}.txt").write_text(_HEADER + "".join(requirements))


if __name__ == "__main__":
    main()
