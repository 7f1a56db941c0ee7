"""The wall clock may be set at any time, so durations and deadlines use a monotonic clock."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

_WALL_CLOCK = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}

_ALLOWED = {
    "app/plugins/bulk_run/predictors.py": "when an image was processed, for records",
    "app/plugins/calibration/evaluation/report.py": "when a calibration was made, for people",
    "app/plugins/feedback/truths/truth_store.py": "when a truth arrived, for people",
    "app/plugins/shadow/rows.py": "which answers are too old",
    "app/plugins/shadow/service.py": "when a shadow version answered, for people",
    "app/plugins/drift/command.py": "when a baseline was created, for people",
    "app/plugins/keys/command.py": "when a key was created, for people",
    "app/plugins/drift/monitor.py": "when a window started and ended, for people",
    "app/core/engine/engine.py": "when the body of a request arrived, for records",
    "app/plugins/triton/statistics.py": "when a model answered last, for clients",
    "app/core/engine/request_context.py": "arrival of requests, for records; ids, unique whatever the clock says",
    "app/plugins/otel/tracing.py": "when a span ended; its duration is measured with the monotonic clock",
    "app/plugins/kserve_v1/cloud_events.py": "when an event was created, for clients",
    "app/plugins/kserve_v1/wire.py": "when the server started, for clients",
    "app/plugins/recording/query/filters.py": "the time that `--since 1h` means",
    "app/plugins/recording/retention.py": "which records are too old; a clock that jumps ahead is ignored",
    "app/core/server/auth/api_keys.py": "whether a key has expired",
    "app/plugins/jwt/validator.py": "whether a token has expired",
    "app/core/server/tls.py": "whether a certificate has expired",
}


def _reads_wall_clock(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in _WALL_CLOCK
        for node in ast.walk(tree)
    )


def test_only_listed_modules_read_the_wall_clock() -> None:
    readers = set[str]()
    for package in ("app", "metadata", "tasks"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text()
            if ("time" in text) and _reads_wall_clock(ast.parse(text)):
                readers.add(str(file.relative_to(ROOT)))
    assert readers - set(_ALLOWED) == set()
    assert len(readers) > 5
