"""Write the parts of the documentation that are read from plugins, options and commands. `make docs` runs it."""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from cyclopts import App, Argument, Group

from app.core.cli import DEFAULTS, command_line
from app.core.cli.serve import serve
from app.core.plugins import registry
from app.core.settings.model import ModelSettings
from app.plugins.conformance.check import Level
from app.plugins.conformance.protocols import PROTOCOLS
from tasks.task import TaskType
from tests.plugins.layouts.detector_exports import CASES, input_boxes

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parent
_WIDTH = 105
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)
_GENERATED = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def plugins() -> str:
    """Return a table with a row for each built-in plugin."""
    rows: list[Sequence[str]] = []
    for name, plugin in sorted(registry().loaded.items()):
        if name != "core":
            needed = [f"`{required}`" for required in plugin.requires] + (
                [f"extra `{plugin.extra}`"] if plugin.extra else []
            )
            commands = ", ".join(f"`{command.name}`" for command in plugin.commands)
            rows.append((f"`{plugin.name}`", plugin.summary, commands, ", ".join(needed)))
    return _table(("plugin", "what it adds", "commands", "requires"), rows)


def checks() -> str:
    """Return a table of the protocols that ``conform`` checks, with their numbers of checks."""
    levels = (Level.MUST, Level.SHOULD)
    rows = [
        (f"`{protocol.name}`", *(str(sum(check.level is level for check in protocol.checks)) for level in levels))
        for protocol in PROTOCOLS
    ]
    return _table(("`--protocol`", "MUST", "SHOULD"), rows)


def options() -> str:
    """Return a table of the options of ``serve`` for each group of its help."""
    groups: dict[Group, list[Sequence[str]]] = {}
    for argument in _serve_arguments():
        variables = ", ".join(f"`{variable}`" for variable in argument.parameter.env_var or ())
        (group,) = cast("tuple[Group]", argument.parameter.group)
        groups.setdefault(group, []).append((_names(argument), variables, _default(argument), _meaning(argument)))
    heading = "option", "environment", "default", "meaning"
    in_order = sorted(groups.items(), key=lambda item: cast("int", item[0].sort_key))
    return "\n".join(f"### {group.name}\n\n{_table(heading, rows)}" for group, rows in in_order)


def settings() -> str:
    """Return a table of the fields of model-settings.json: those of core, then those of plugins."""
    rows = list(_fields(ModelSettings))
    for _, plugin in sorted(registry().loaded.items()):
        for section, ref in plugin.model_settings.items():
            rows += _fields(ref.load(), f"{section}." if section else "")
    return _table(("field", "default", "meaning"), rows)


def families() -> str:
    """Return a table of the families of ONNX graphs: those of families.toml, and the exporters in `CASES`."""
    verified = _verified()
    rows: list[Sequence[str]] = []
    for name, family in tomllib.loads((_FOLDER / "families.toml").read_text()).items():
        columns = [family[key] for key in ("made_by", "layout", "outputs", "inferred", "declared")]
        by_hand = [f"by hand, {family['by_hand']}"] if "by_hand" in family else []
        rows.append((*columns, "; ".join([*verified.pop(name), *by_hand])))
        if name == "detections":
            rows += _exporters(verified)
    if verified:
        raise ValueError(f"Tests verify families that families.toml lacks: {', '.join(sorted(verified))}")
    needed = "to be declared in `model-settings.json`"
    return _table(("made by", "`layout`", "outputs", "inferred", needed, "verified with"), rows)


def _exporters(verified: dict[str, list[str]]) -> Iterator[Sequence[str]]:
    """Yield a row for each exporter that tests decode with the layout `detections`, without variants of its labels."""
    common, seen = verified.pop("exporters"), set[str]()
    libraries = {name: verified.pop(name) for name in ("torchvision", "effdet")}
    for case in CASES:
        outputs = case.outputs(input_boxes("stretch"))
        shown = ", ".join(f"`{name} {list(array.shape)}`" for name, array in outputs.items())
        shown += f"; inputs {', '.join(f'`{name}`' for name in case.inputs)}" if case.inputs else ""
        line = f"`{json.dumps({'layout': 'detections', 'detections': case.declared})}`" if case.declared else ""
        exporter = re.sub(", background .*", "", case.exporter)
        if f"{exporter}{line}" not in seen:
            seen.add(f"{exporter}{line}")
            ways = [*common, *libraries.get(exporter, ())]
            yield exporter, "`detections`", shown, "as above", line or "`labels`", "; ".join(ways)


def _verified() -> dict[str, list[str]]:
    """Return how tests verify each family, by its name, from their marks ``verifies(how, *families)``."""
    found: dict[str, list[str]] = {}
    for file in sorted((_ROOT / "tests").rglob("test_*.py")):
        if "mark.verifies(" in (text := file.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "verifies":
                    how, *names = (ast.literal_eval(argument) for argument in node.args)
                    for name in names:
                        if how not in found.setdefault(name, []):
                            found[name].append(how)
    return found


def _fields(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Sequence[str]]:
    """Yield a row for each field, and for the fields of objects in it, with the texts of ``Attributes:``."""
    _, _, attributes = cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    texts = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
    for field in msgspec.structs.fields(kind):
        members = [member for member in (field.type, *get_args(field.type)) if isinstance(member, type)]
        if nested := next((member for member in members if issubclass(member, msgspec.Struct)), None):
            yield from _fields(nested, f"{prefix}{field.name}.")
            continue
        choices = [value for literal in _literals(field.type) for value in get_args(literal)]
        if TaskType in members:
            choices = [str(task_type) for task_type in TaskType]
        listed = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if len(choices) > 1 else ""
        default = field.default if isinstance(field.default, bool | int | float | str) else None
        shown = json.dumps(default) if default not in (None, "") else ""
        meaning = texts.get(field.name, "").replace("``", "`")
        yield f"`{prefix}{field.name}`", shown, f"{meaning[:1].upper()}{meaning[1:]}{listed}".strip()


def _literals(hint: object) -> Iterator[object]:
    """Yield each ``Literal`` in a type."""
    if get_origin(hint) is Literal:
        yield hint
    for member in get_args(hint):
        yield from _literals(member)


def commands() -> str:
    """Return a section for each command but ``serve``, from its help."""
    shared = {argument.name: argument.parameter.help or "" for argument in _serve_arguments()}
    sections: list[str] = []
    for name in sorted(registry().commands.keys() - {"serve"}):
        app = command_line()[name]
        if app.default_command is not None:
            app.help = None
            sections.append(_section(name, app, shared))
        else:
            subcommands = [key for key in app.resolved_commands() if not key.startswith("-")]
            sections += [_section(f"{name} {subcommand}", app[subcommand], shared) for subcommand in subcommands]
    return "\n".join(sections)


def _section(name: str, app: App, shared: Mapping[str, str]) -> str:
    """Return the section of a command; options that it shares with ``serve`` are only listed."""
    paragraphs = [cleandoc(app.default_command.__doc__ or "").partition("\n\nArgs:")[0] + "\n"]
    arguments = list(_arguments(app, rare=True))
    own = [argument for argument in arguments if argument.parameter.help != shared.get(argument.name)]
    if own:
        rows = [(_names(argument), _default(argument), _meaning(argument)) for argument in own]
        paragraphs.append(_table(("option", "default", "meaning"), rows))
    if also := ", ".join(f"`{argument.name}`" for argument in arguments if argument not in own):
        text = f"Also, as for [serve](configuration.md#options): {also}."
        paragraphs.append(fill(text, _WIDTH, break_on_hyphens=False) + "\n")
    return "\n".join([f"## {name}\n", *paragraphs])


def _serve_arguments() -> Sequence[Argument]:
    app = App(default_parameter=DEFAULTS)
    app.default(serve)
    return list(_arguments(app))


def _arguments(app: App, *, rare: bool = False) -> Iterator[Argument]:
    """Yield the options that the help lists, and with `rare` the others too."""
    for argument in app.assemble_argument_collection(parse_docstring=True):
        if not argument.children and argument.parse and (rare or argument.parameter.show is not False):
            yield argument


def _names(argument: Argument) -> str:
    if argument.index is not None:
        return f"`{argument.name.removeprefix('--').upper()}`"
    # The negative name of a switch that is off by default has no use.
    names = [name for name in argument.names if argument.field_info.default is not False or "--no-" not in name]
    return ", ".join(f"`{name}`" for name in names if not name.startswith("--empty-"))


def _default(argument: Argument) -> str:
    if argument.required:
        return "required"
    default: Any = argument.field_info.default
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", default)))
    return str(default) if isinstance(default, int | str | Path) else ""


def _meaning(argument: Argument) -> str:
    choices = argument.get_choices() or ()
    listed = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
    return " ".join((argument.parameter.help or "").split()).replace("|", "\\|") + listed


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, ["---"] * len(heading), *rows))


GENERATED: Mapping[str, Callable[[], str]] = {
    "checks": checks,
    "commands": commands,
    "families": families,
    "options": options,
    "plugins": plugins,
    "settings": settings,
}


def filled(text: str) -> str:
    """Return the text of a page with its generated parts."""
    return _GENERATED.sub(lambda match: f"{match[1]}{GENERATED[match[2]]()}", text)


def skill() -> str:
    """Return SKILL.md: what README.md says about serving, evaluating and deploying, for coding agents."""
    _, *sections = re.split(r"^(?=## )", (_ROOT / "README.md").read_text(), flags=re.MULTILINE)
    about = _first_sentence((_ROOT / "README.md").read_text())
    header = (
        "---\nname: charioteer\n"
        "description: Serve, check, evaluate and deploy a vision model (ONNX, Hugging Face or a Python class).\n"
        "---\n\n# Charioteer\n\n"
    )
    advice = (
        "Run `charioteer check MODEL` before anything else, and read what it guessed. `charioteer COMMAND --help-all`\n"
        "lists all options. [llms.txt](docs/llms.txt) lists the pages.\n\n"
    )
    return f"{header}{about}\n\n{advice}{''.join(sections).strip()}\n"


def llms() -> str:
    """Return llms.txt: every page with its first sentence, in the order of the navigation."""
    pages = re.findall(r": (\w+\.md)$", (_ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    lines = [_listed(_FOLDER / page) for page in pages if page != "index.md"]
    about = _first_sentence((_FOLDER / "index.md").read_text())
    return f"# Charioteer\n\n> {about}\n\n## Pages (in an installed guide, they end in .html)\n\n" + "".join(lines)


def _listed(page: Path) -> str:
    text = page.read_text()
    return f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({page.name}): {_first_sentence(text)}\n"


def _first_sentence(text: str) -> str:
    """Return the first sentence below the title, without links."""
    texts = re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n")[1:]
    first = next(text for text in texts if text.strip()[:1].isalpha() or text.startswith("`"))
    paragraph = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.:]) (?=[A-Z`*])", paragraph)[0]


WRITTEN: Mapping[Path, Callable[[], str]] = {_ROOT / "SKILL.md": skill, _FOLDER / "llms.txt": llms}
"""Files that are generated as a whole."""


if __name__ == "__main__":
    for file, write in WRITTEN.items():
        file.write_text(write())
    for page in _FOLDER.glob("*.md"):
        if (text := page.read_text()) != (new := filled(text)):
            page.write_text(new)
