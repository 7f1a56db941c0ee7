"""The runbook and the alerts know everything that the server says, and nothing that it does not."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.exchange.error import ErrorKind

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
_RULES: Any = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in _RULES["groups"] for rule in group["rules"]]

_FAMILIES = {
    "Counter": "_total",
    "CounterMetricFamily": "_total",
    "Gauge": "",
    "GaugeMetricFamily": "",
    "Histogram": "",
    "family": "",
}
"""What makes a metric, and what Prometheus puts behind its name."""

_OF_PROMETHEUS = {"up"}
_OF_THE_PROCESS = {"process_start_time_seconds", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_SAID_OTHERWISE = {
    "app/observers/request_log.py": ("inference", "explanation"),
    "app/server/stopping.py": ("told to stop again", "the end took too long"),
    "app/recording/report.py": ("the store of recordings is behind; what does not fit the queue is not recorded",),
    "app/server/log_lines.py": ("log lines lost",),
}
"""Events that are no literal where they are logged, by the file that logs them."""


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the server that has a metric or a logger, parsed."""
    sources = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "app").rglob("*.py")}
    return {file: ast.parse(text) for file, text in sources.items() if "log" in text or "charioteer_" in text}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def literal(node: ast.expr, tree: ast.Module) -> str | None:
    """A text, or the one text that a name stands for in its module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        for each in ast.walk(tree):
            if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets):
                return literal(each.value, tree)
    return None


def metrics() -> set[str]:
    """The metrics of the server's own that any module makes."""
    found: set[str] = set()
    for tree in trees().values():
        for call in calls(tree):
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if name in _FAMILIES and call.args and (said := literal(call.args[0], tree)):
                found.add(said + _FAMILIES[name])
    return found


def events() -> Iterator[tuple[str, str | None]]:
    """Every place that writes to the log: its file, and what it says there if that is a literal."""
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
    """Whether the runbook has it: what is filled in stands as dots, or has examples of its own."""
    if event.startswith("%s %s"):
        return "`MODEL has drifted`" in RUNBOOK and "`MODEL is watched no longer`" in RUNBOOK
    if event.startswith("drift of %s could not be judged"):
        event = "drift of ... could not be judged"
    return f"`{re.sub('%s', '...', event).removesuffix(': ...')}" in RUNBOOK


def test_the_runbook_has_every_metric() -> None:
    found = metrics()
    assert len(found) > 20
    assert [name for name in sorted(found) if f"`{name}`" not in RUNBOOK] == []


def test_the_runbook_has_no_metric_that_is_none() -> None:
    named = set(re.findall(r"`(charioteer_[a-z_]+)`", RUNBOOK))
    assert named - metrics() == set()


def test_the_runbook_has_every_event_of_the_log() -> None:
    found = list(events())
    assert len(found) > 30
    unknown = sorted({said for _, said in found if said is not None and not documented(said)})
    assert unknown == []
    otherwise = {file for file, said in found if said is None}
    assert otherwise <= set(_SAID_OTHERWISE), "what is no literal is listed here"
    assert [said for each in _SAID_OTHERWISE.values() for said in each if f"`{said}`" not in RUNBOOK] == []
    for file, listed in _SAID_OTHERWISE.items():
        source = (ROOT / file).read_text()
        assert [said for said in listed if said not in source] == [], file


@pytest.mark.parametrize("kind", ErrorKind)
def test_the_runbook_has_every_kind_of_error(kind: ErrorKind) -> None:
    assert f"\n| `{kind}` |" in RUNBOOK


@pytest.mark.parametrize("alert", ALERTS, ids=[each["alert"] for each in ALERTS])
def test_an_alert_is_whole_and_is_explained(alert: dict[str, Any]) -> None:
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"\d+[smhd]", alert.get("for", "1m"))
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
    assert f"\n### {alert['alert']}\n" in RUNBOOK


@pytest.mark.parametrize("alert", ALERTS, ids=[each["alert"] for each in ALERTS])
def test_an_alert_asks_for_metrics_that_there_are(alert: dict[str, Any]) -> None:
    expression = alert["expr"]
    named = set(re.findall(r"\b(?:(?:charioteer|process)_[a-z_]+|up)\b", expression))
    known = metrics() | _OF_THE_PROCESS | _OF_PROMETHEUS
    known |= {f"{name}_bucket" for name in known}
    assert named
    assert named - known == set()
    assert expression.count("(") == expression.count(")")
    outcomes = {each for value in re.findall(r'outcome=~?"([^"]+)"', expression) for each in value.split("|")}
    assert outcomes <= {"ok", *ErrorKind}


def test_every_explained_alert_is_one() -> None:
    assert set(re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)) == {each["alert"] for each in ALERTS}
    assert set(re.findall(r"\b(Charioteer[A-Z]\w+)", RUNBOOK)) == {each["alert"] for each in ALERTS}
