"""The runbook and the alerts cover every metric, log event and error of the server, and no others."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.inference.error import ErrorKind

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
_RULES: Any = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
DASHBOARD = (ROOT / "deploy" / "grafana" / "charioteer.json").read_text()
ALERTS: list[dict[str, Any]] = [rule for group in _RULES["groups"] for rule in group["rules"]]

_FAMILIES = {
    "Counter": "_total",
    "CounterMetricFamily": "_total",
    "Gauge": "",
    "GaugeMetricFamily": "",
    "Histogram": "",
    "counter": "_total",
    "family": "",
    "gauge": "",
    "histogram": "",
}
"""Functions that create a metric, and the suffix that Prometheus adds to its name."""

_PROMETHEUS_METRICS = {"up"}
_PROCESS_METRICS = {
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_INDIRECT_EVENTS = {
    "app/core/observers/request_log.py": ("inference", "explanation"),
    "app/core/server/process.py": ("model repository scan failed",),
    "app/core/server/process_setup.py": ("memory not released",),
    "app/core/server/tls.py": ("certificate not renewed",),
    "app/core/server/serving.py": ("second stop signal", "shutdown timed out"),
    "app/plugins/recording/recording_metrics.py": (
        "the store of recordings is behind; what does not fit the queue is not recorded",
    ),
    "app/core/server/logs/lines.py": ("log lines lost",),
    "app/plugins/isolation/supervisor.py": ("model process ended", "model process failed to start"),
}
"""Events that are not literals where they are logged, by file."""

_EVENTS_OF_LIBRARIES = {"Cancel ... running task(s), timeout graceful shutdown exceeded"}


@cache
def trees() -> dict[str, ast.Module]:
    """Parse every module of the server that has a metric or a logger."""
    sources = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "app").rglob("*.py")}
    return {file: ast.parse(text) for file, text in sources.items() if "log" in text or "charioteer_" in text}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def literal(node: ast.expr, tree: ast.Module) -> str | None:
    """Return a text, or the text that a name stands for in its module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == node.id for t in statement.targets
            ):
                return literal(statement.value, tree)
    return None


@cache
def metrics() -> set[str]:
    """Return the names of all metrics that the server creates."""
    names: set[str] = set()
    for tree in trees().values():
        for call in calls(tree):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in _FAMILIES and call.args and (metric := literal(call.args[0], tree)):
                names.add(metric + _FAMILIES[name])
    return names


def events() -> Iterator[tuple[str, str | None]]:
    """Yield every log call: its file, and its event if that is a literal."""
    for file, tree in trees().items():
        for call in calls(tree):
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LEVELS or not call.args:
                continue
            logger = call.func.value
            name = (
                logger.attr if isinstance(logger, ast.Attribute) else logger.id if isinstance(logger, ast.Name) else ""
            )
            if name in ("_logger", "_log", "log", "logger"):
                yield file, literal(call.args[0], tree)


def documented(event: str) -> bool:
    """Return whether the runbook has an event, with dots for its arguments or with examples."""
    if event.startswith("%s %s"):
        return "`MODEL has drifted`" in RUNBOOK and "`MODEL is no longer monitored`" in RUNBOOK
    if event.startswith("drift of %s could not be judged"):
        event = "drift of ... could not be judged"
    return f"`{re.sub('%[sd]', '...', event).removesuffix(': ...')}" in RUNBOOK


def test_runbook_has_every_metric() -> None:
    names = metrics()
    assert len(names) > 20
    assert [name for name in sorted(names) if f"`{name}`" not in RUNBOOK] == []


def test_runbook_has_no_unknown_metric() -> None:
    named = set(re.findall(r"`(charioteer_[a-z_]+)`", RUNBOOK))
    assert named - metrics() == set()


def test_runbook_has_every_log_event() -> None:
    logged_events = list(events())
    assert len(logged_events) > 30
    unknown = sorted({event for _, event in logged_events if event is not None and not documented(event)})
    assert unknown == []
    indirect = {file for file, event in logged_events if event is None}
    assert indirect <= set(_INDIRECT_EVENTS), "list events that are no literals in _INDIRECT_EVENTS"
    assert [
        event for file_events in _INDIRECT_EVENTS.values() for event in file_events if f"`{event}`" not in RUNBOOK
    ] == []
    for file, listed in _INDIRECT_EVENTS.items():
        source = (ROOT / file).read_text()
        assert [event for event in listed if event not in source] == [], file


def test_runbook_has_no_unknown_log_event() -> None:
    constants = (node.value for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = "\n".join(value for value in constants if isinstance(value, str))
    rows = re.findall(r"^\| (`.*?) \|", RUNBOOK.split("## Log events")[1], re.MULTILINE)
    named = [event for row in rows for event in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 50
    # `test_runbook_has_every_log_event` checks the indirect ones.
    known = _EVENTS_OF_LIBRARIES.union(*_INDIRECT_EVENTS.values())
    parts = {event: re.split(r"\.\.\.|MODEL", event) for event in named if event not in known}
    assert [event for event, pieces in parts.items() if not all(piece.strip(" :") in texts for piece in pieces)] == []


def test_alerts_name_only_log_events_of_the_table() -> None:
    text, table = RUNBOOK.split("## Log events")
    text = re.sub(r"```.*?```", "", text.split("## Metrics")[0], flags=re.DOTALL)
    named = re.findall(r"`([a-z]+(?: [a-z]+)+)`", text)
    assert "certificate renewed" in named
    assert [event for event in named if f"`{event}`" not in table] == []


@pytest.mark.parametrize("kind", ErrorKind)
def test_runbook_has_every_kind_of_error(kind: ErrorKind) -> None:
    assert f"\n| `{kind}` |" in RUNBOOK


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_alert_is_complete_and_in_the_runbook(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"\d+[smhd]", alert.get("for", "1m"))
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook_url"].endswith(f"/guide/runbook.html#{alert['alert'].lower()}")
    assert f"\n### {alert['alert']}\n" in RUNBOOK


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_alert_uses_existing_metrics(alert: dict[str, Any]) -> None:
    expression = alert["expr"]
    named = set(re.findall(r"\b(?:(?:charioteer|process)_[a-z_]+|up)\b", expression))
    known = metrics() | _PROCESS_METRICS | _PROMETHEUS_METRICS
    known |= {f"{name}_bucket" for name in known}
    assert named
    assert named - known == set()
    assert expression.count("(") == expression.count(")")
    outcomes = {outcome for value in re.findall(r'outcome=~?"([^"]+)"', expression) for outcome in value.split("|")}
    assert outcomes <= {"ok", *ErrorKind}


def test_dashboard_uses_existing_metrics() -> None:
    named = set(re.findall(r"charioteer_[a-z_]+", DASHBOARD))
    assert len(named) > 20
    assert named - {name + suffix for name in metrics() for suffix in ("", "_bucket", "_sum", "_count")} == set()


def test_runbook_explains_only_existing_alerts() -> None:
    assert set(re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)) == {alert["alert"] for alert in ALERTS}
    assert set(re.findall(r"\b(Charioteer[A-Z]\w+)", RUNBOOK)) == {alert["alert"] for alert in ALERTS}
