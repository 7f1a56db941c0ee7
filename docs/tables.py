"""Write the tables of the documentation that are read from the objects of plugins. `make docs` runs it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from app.core.plugins import registry

_FOLDER = Path(__file__).parent
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def plugins() -> Iterable[Sequence[str]]:
    """Yield a row for each built-in plugin."""
    yield "plugin", "what it adds", "commands", "requires"
    for name, plugin in sorted(registry().loaded.items()):
        if name != "core":
            needed = [f"`{required}`" for required in plugin.requires] + (
                [f"extra `{plugin.extra}`"] if plugin.extra else []
            )
            commands = ", ".join(f"`{command.name}`" for command in plugin.commands)
            yield f"`{plugin.name}`", plugin.summary, commands, ", ".join(needed)


TABLES: Mapping[str, Callable[[], Iterable[Sequence[str]]]] = {"plugins": plugins}


def filled(text: str) -> str:
    """Return the text of a page with its tables."""

    def table(match: re.Match[str]) -> str:
        heading, *rows = TABLES[match[2]]()
        return match[1] + "".join(f"| {' | '.join(row)} |\n" for row in (heading, ["---"] * len(heading), *rows))

    return _TABLE.sub(table, text)


if __name__ == "__main__":
    for page in _FOLDER.glob("*.md"):
        if (text := page.read_text()) != (new := filled(text)):
            page.write_text(new)
