"""Somebody may set the clock at any time: how long things take, and when they are due, is told by one nobody sets."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

_SET_BY_ANYBODY = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}

_ALLOWED = {
    "app/cli/drift.py": "when a baseline was made, for people",
    "app/cli/keys.py": "when a key was made, for people",
    "app/drift/monitor.py": "when a window began and ended, for people",
    "app/engine/ids.py": "ids that lie in the order of their making; unique by chance, whatever the clock says",
    "app/engine/statistics.py": "when a model answered last, for clients",
    "app/engine/story.py": "when a request arrived, for whoever keeps it",
    "app/observers/tracing.py": "when a span ended; how long it took is measured otherwise",
    "app/protocols/kserve_v1/cloud_events.py": "when an event was made, for clients",
    "app/recording/query.py": "what `--since 1h` means",
    "app/recording/retention.py": "what is too old; a clock that leaps ahead is not believed",
    "app/runtimes/onnxruntime/image_text_to_text/chat_template.py": "today's date, where a template asks for it",
    "app/server/access/keys.py": "whether a key has ended",
    "app/server/access/tokens.py": "whether a token has ended",
    "app/server/tls.py": "whether a certificate has ended",
}


def _reads_the_clock(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in _SET_BY_ANYBODY
        for node in ast.walk(tree)
    )


def test_only_what_is_about_dates_reads_the_clock_that_can_be_set() -> None:
    reading = set[str]()
    for package in ("app", "metadata", "tasks"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text()
            if ("time" in text) and _reads_the_clock(ast.parse(text)):
                reading.add(str(file.relative_to(ROOT)))
    assert reading - set(_ALLOWED) == set()
    assert len(reading) > 5
