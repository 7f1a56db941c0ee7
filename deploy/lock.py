"""Writes the locks that deploy/install.sh installs from: every package with its version and its digests. `make lock`.

``requirements/base.txt`` is what the server needs on any machine and any Python that it supports, ``<extra>.txt`` is
what an extra adds to that, and ``build.txt`` is what makes a wheel of the server. They are one solution, so that any of
them go together. No registry is named in them.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("evaluate", "jwt", "otel", "parquet", "postgres", "signatures", "torch")
"""Those that an image may be built with."""
_HEADER = "# Made by `make lock`; not edited by hand.\n"
_OPTIONS = (
    "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header", "--python-version", "3.11",
)  # fmt: skip


def main() -> None:
    """Solve for everything at once, and write each file."""
    project = ROOT / "pyproject.toml"
    told = tomllib.loads(project.read_text())
    extras = [each for each in EXTRAS if each in told["project"]["optional-dependencies"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = folder / "build.in"
        build.write_text("\n".join(told["build-system"]["requires"]))
        everything = folder / "everything.txt"
        compile_(everything, str(project), *(f"--extra={each}" for each in extras))
        base = blocks(compile_(folder / "base.txt", str(project), f"--constraint={everything}"))
        write("base", base)
        for each in extras:
            found = compile_(folder / f"{each}.txt", str(project), f"--extra={each}", f"--constraint={everything}")
            write(each, [block for block in blocks(found) if block not in base])
        write("build", blocks(compile_(folder / "build.txt", str(build))))


def compile_(output: Path, *arguments: str) -> str:
    """What uv finds."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *_OPTIONS, f"--output-file={output}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)
    return output.read_text()


def blocks(text: str) -> list[str]:
    """The requirements of a file, each with the lines of its digests."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[0].isspace():
            found[-1] += line
        else:
            found.append(line)
    return found


def write(name: str, requirements: list[str]) -> None:
    """One file of the locks."""
    (ROOT / "deploy" / "requirements" / f"{name}.txt").write_text(_HEADER + "".join(requirements))


if __name__ == "__main__":
    main()
