"""Check that every link in the Markdown files of this repository leads to an existing file and heading."""

import re
import sys
from pathlib import Path

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print every dead link, and exit with status 1 if there is one. Hidden files and `build` are skipped."""
    files = [
        path
        for path in _ROOT.rglob("*.md")
        if not any(part.startswith(".") or part == "build" for part in path.relative_to(_ROOT).parts)
    ]
    dead = [message for path in sorted(files) for message in _dead_links(path)]
    print(f"{len(files)} Markdown files, {len(dead)} dead links")
    for message in dead:
        print(message)
    sys.exit(bool(dead))


def _dead_links(path: Path) -> list[str]:
    found: list[str] = []
    for link in _LINK.finditer(_FENCE.sub("", path.read_text())):
        target, _, heading = link["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            found.append(f"{path.relative_to(_ROOT)}: {link['target']}: no such file")
        elif heading and heading not in _headings(file):
            found.append(f"{path.relative_to(_ROOT)}: {link['target']}: no such heading")
    return found


def _headings(path: Path) -> set[str]:
    lines = [line.lstrip("#").strip() for line in _FENCE.sub("", path.read_text()).splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


if __name__ == "__main__":
    main()
