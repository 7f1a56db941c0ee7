"""Delete plugins from a copy of the code, and try what is left: ``python -m tests.support.removal [PLUGIN ...]``.

It deletes each plugin in turn and tries all others (``make test-removal``). The quick tests are those of
`tests/core/test_removal.py`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in (ROOT / "app" / "plugins").glob("*/__init__.py"))
"""The names of the built-in plugins."""

_TIMEOUT_SECONDS = 300


class Tree:
    """A copy of the code that plugins are deleted from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("app", "metadata", "tasks"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "fixtures").mkdir()
        for name in ("images", "models"):
            (folder / "fixtures" / name).symlink_to(ROOT / "fixtures" / name)

    @contextmanager
    def without(self, *plugins: str) -> Generator[None]:
        """Delete the folders of plugins, and restore them in the end. Without names, delete ``app/plugins``."""
        deleted = self.folder / "deleted"
        home = self.folder / "app" / "plugins"
        moves = [(home / name, deleted / name) for name in plugins] or [(home, deleted / "plugins")]
        deleted.mkdir()
        for present, absent in moves:
            present.rename(absent)
        try:
            yield
        finally:
            for present, absent in moves:
                absent.rename(present)
            deleted.rmdir()

    def python(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Python, which finds the copy of our packages and the tests of the checkout."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )

    def try_out(self, removed: Collection[str], tried: Collection[str] = ()) -> None:
        """Try the core and the plugins `tried` in a process of their own, after `removed` were deleted.

        Raise AssertionError with the output of the process, if anything fails.
        """
        completed = self.python("-m", "tests.support.remaining", json.dumps([*removed]), json.dumps([*tried]))
        assert completed.returncode == 0, completed.stdout + completed.stderr


def main(names: Sequence[str]) -> int:
    """Delete each plugin alone, try all others, and print what happens. Return the exit status."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        for name in names or PLUGINS:
            try:
                with tree.without(name):
                    tree.try_out([name], PLUGINS)
                result = "ok"
            except AssertionError as error:
                failed += 1
                result = f"failed\n{error}"
            sys.stdout.write(f"{name}: {result}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
