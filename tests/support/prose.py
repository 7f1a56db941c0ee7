"""Find words and sentences that break the style of this project: ``python -m tests.support.prose [PATH ...]``.

It reads comments, docstrings, messages and names of Python, every line of other code, and Markdown outside code blocks.
`make check` runs it on everything; it fails if it finds anything.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# Words that a reader has to decode. The field has a term for each: see CONTRIBUTING.md.
DIALECT = (
    "told", "tells", "nobody", "whoever", "somebody", "anew", "so many", "as many as", "that is none", "what is none",
    "of which", "at length", "in hand", "lest", "not to be", "is to be", "are to be", "picture", "pictures",
    "refuse", "refuses", "refused", "refusing", "refusal", "refusals",
)  # fmt: skip
MAX_WORDS = 25
MAX_PRONOUNS = {".py": 30, ".md": 10}
"""How often all files of the product, and all documents, may say *those of*: readers look back for its noun."""

_DIALECT = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in DIALECT) + r")\b", re.IGNORECASE)
_NAME_DIALECT = re.compile(
    r"^each$|(?:^|_)(told|tells|nobody|whoever|somebody|anew|lest|picture|pictures)(?:_|$)", re.IGNORECASE
)
_ALLOWED = re.compile(
    r"(in the|the red|Describe the|in\" the)\s+picture|dog\. picture|pictures: session\.images"
    r"|connections?\s+refused|access refused|[`\"]refused[`\"]|\"refusal\"",
    re.IGNORECASE,
)
"""Prompts for models, whose wording is data, a key of the page's JSON export, and names that logs and OpenAI have."""
_PRONOUN = re.compile(r"\b(those|that|the one) of\b", re.IGNORECASE)
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])[\"')*]*\s+")
_SKIPPED = ("fixtures/images", "fixtures/models", "fixtures/wire", "LICENSE", "CHANGELOG.md", "tests/support/prose.py")
_FOLDERS = ("app", "tasks", "metadata", "tests", "fixtures", "docs", "deploy")
_TOP_LEVEL = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")
_CODE_SUFFIXES = {".js", ".css", ".html", ".yaml", ".yml", ".toml", ".sh", ".proto", ".jinja"}


class Passage(NamedTuple):
    """A piece of prose and the line where it starts."""

    path: Path
    line: int
    text: str


class Finding(NamedTuple):
    """A word or sentence that breaks a rule."""

    path: Path
    line: int
    text: str


def files(*paths: str) -> list[Path]:
    """Return the files under `paths`, or all files that the rules cover."""
    roots = [ROOT / path for path in paths or (*_FOLDERS, *_TOP_LEVEL)]
    candidates = [file for path in roots for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    suffixes = _CODE_SUFFIXES | {".py", ".md"}
    return [
        file
        for file in candidates
        if (file.suffix in suffixes or file.name in _TOP_LEVEL)
        and not str(file.relative_to(ROOT)).startswith(_SKIPPED)
        and "__pycache__" not in file.parts
    ]


def passages(path: Path) -> Iterator[Passage]:
    """Yield the prose of a file: Python comments and docstrings, Markdown without code, other files by line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _python(path, text)
    elif path.suffix == ".md":
        yield from _markdown(path, text)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            yield Passage(path, number, line)


def _python(path: Path, text: str) -> Iterator[Passage]:
    for node in _nodes(text):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Passage(path, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(path, token.start[0], token.string.lstrip("# "))


@lru_cache(maxsize=1)
def _nodes(text: str) -> Sequence[ast.AST]:
    """Return every node of a module; both the prose and the names of a file are found in them."""
    return tuple(ast.walk(ast.parse(text)))


def _markdown(path: Path, text: str) -> Iterator[Passage]:
    text = _FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    start, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        starts_block = re.match(r"\s*(#|\||[-*+] |\d+\. |<|!\[)", line)
        if lines and (not line.strip() or starts_block):
            yield Passage(path, start, " ".join(lines))
            lines = []
        if line.strip():
            start = number if not lines else start
            lines.append(line.strip())


def dialect(path: Path) -> Iterator[Finding]:
    """Yield the dialect words in the prose of a file, and in the names that a Python file defines."""
    for passage in passages(path):
        for match in _DIALECT.finditer(_ALLOWED.sub(lambda allowed: " " * len(allowed.group()), passage.text)):
            line = passage.line + passage.text.count("\n", 0, match.start())
            yield Finding(path, line, match.group())
    if path.suffix == ".py":
        yield from _names(path)


def _names(path: Path) -> Iterator[Finding]:
    for node in _nodes(path.read_text(encoding="utf-8")):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [node.name]
            case ast.arg():
                names = [node.arg]
            case ast.Name(ctx=ast.Store()):
                names = [node.id]
            case ast.Attribute(ctx=ast.Store()):
                names = [node.attr]
            case _:
                names = []
        line: int = getattr(node, "lineno", 0)
        yield from (Finding(path, line, name) for name in names if _NAME_DIALECT.search(name))


def long_sentences(path: Path) -> Iterator[Finding]:
    """Yield the sentences of a Markdown file with more than `MAX_WORDS` words; tables and headings do not count."""
    for passage in passages(path):
        if passage.text.startswith(("|", "#", "<", "![")):
            continue
        text = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", passage.text))
        for sentence in _SENTENCE_END.split(text):
            if len(sentence.split()) > MAX_WORDS:
                yield Finding(path, passage.line, sentence)


def too_many_pronouns() -> Iterator[Finding]:
    """Yield the places with *those of* or *that of* instead of a noun, of each kind of file with more than allowed."""
    for suffix, folders in ((".py", ("app", "tasks", "metadata")), (".md", ("docs", *_TOP_LEVEL[:3]))):
        found = [
            Finding(file, passage.line, match.group())
            for file in files(*folders)
            if file.suffix == suffix
            for passage in passages(file)
            for match in _PRONOUN.finditer(passage.text)
        ]
        if len(found) > MAX_PRONOUNS[suffix]:
            yield from found


def main(*paths: str) -> int:
    """Print every finding below `paths`, and return how many there are."""
    findings = [] if paths else [*too_many_pronouns()]
    count = len(findings)
    for finding in findings:
        print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text}")  # noqa: T201
    for file in files(*paths):
        findings = [*dialect(file), *(long_sentences(file) if file.suffix == ".md" else ())]
        count += len(findings)
        for finding in findings:
            print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text}")  # noqa: T201
    return count


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
