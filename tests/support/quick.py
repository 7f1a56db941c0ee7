"""Run the quick tests that belong to the folders that changed: ``python -m tests.support.quick`` (``make quick``).

Changed are files that differ from the branch `main`, and new ones. `app/core/wire/x.py` belongs to `tests/core/wire`.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
SECONDS = 55
"""Then the run ends, because an inner loop must not take a minute."""


def changed_files() -> Sequence[str]:
    """Return the paths of files that differ from main, and of new files."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def select_tests(files: Iterable[str]) -> Sequence[str]:
    """Return the test files and folders that belong to changed files, without those inside of others."""
    found = {path for file in files if (path := _test_path(PurePosixPath(file))) is not None}
    return sorted(str(path) for path in found if not found.intersection(path.parents))


def _test_path(file: PurePosixPath) -> PurePosixPath | None:
    if file.parts[0] in ("docs", "README.md", "CONTRIBUTING.md"):
        return PurePosixPath("tests/test_docs.py")
    if file.parts[0] == "tests":
        if file.name.startswith("test_") and (ROOT / file).exists():
            return file
        folder = file.parent
    elif file.parts[0] in ("app", "tasks", "metadata"):
        parts = file.parts[1:] if file.parts[0] == "app" else file.parts
        test = PurePosixPath("tests", *parts[:-1], f"test_{file.name}")
        if (ROOT / test).exists():
            return test
        folder = test.parent
    else:
        return None
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    # A folder above tests of several parts belongs to all of them, which would take minutes.
    return folder if any((ROOT / folder).glob("test_*.py")) and folder != PurePosixPath("tests") else None


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )[:-1]


def main() -> int:
    """Run the tests, and return pytest's exit status; 0 if there are none."""
    paths = select_tests(changed_files())
    if not paths:
        sys.stdout.write("No test belongs to the folders that changed\n")
        return 0
    sys.stdout.write("\n".join([*paths, ""]))
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "-m", "not slow", *paths]
    try:
        status = subprocess.run(command, cwd=ROOT, check=False, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        sys.stdout.write(f"\nStopped after {SECONDS} seconds; `make test` runs all tests\n")
        return 1
    return 0 if status == 5 else status  # 5: all tests are slow


if __name__ == "__main__":
    sys.exit(main())
