"""Run clauses as pytest items: each passes, fails, or is skipped with a reason.

``charioteer_pytest`` loads this module if ``--conform-url`` is given.
"""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from app.conformance.clause import Clause, Finding, Level, Verdict
from app.conformance.holding import Holding, UnreachableError
from app.conformance.output.words import evidence, readers_of
from app.conformance.protocols import PROTOCOLS
from app.conformance.trust import Trust
from app.conformance.wish import Wish, WishError, holding

__all__ = ("Conformance",)


class Conformance:
    """The pytest plugin of one run.

    Args:
        config: has the options of ``charioteer_pytest``.

    Raises:
        pytest.UsageError: an option is not valid.
    """

    def __init__(self, config: pytest.Config) -> None:
        stack = ExitStack()
        try:
            self._holding = stack.enter_context(holding(_wish(config)))
        except WishError as error:
            raise pytest.UsageError(f"--conform-...: {error}") from None
        config.add_cleanup(stack.close)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Append the clauses to the collected items, so that ``-k`` and ``-m`` select among them."""
        name = self._holding.protocol.name
        engine = _node(Engine, session, name=name, nodeid=f"charioteer::{name}", holding=self._holding)
        items.extend(engine.collect())


class Engine(pytest.Collector):
    """The collector for an engine's clauses."""

    def __init__(self, *, holding: Holding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.holding = holding

    def collect(self) -> Generator[pytest.Item]:
        """Yield one item for each clause."""
        for clause in self.holding.protocol.clauses:
            yield _node(ClauseItem, self, name=clause.id, holding=self.holding, clause=clause)

    def setup(self) -> None:
        """Check once that the engine answers; if not, every clause is an error with the reason."""
        if reason := self._unreachable_reason():
            pytest.fail(reason, pytrace=False)

    def _unreachable_reason(self) -> str:
        try:
            self.holding.reach()
        except UnreachableError as error:
            return str(error)
        return ""


class ClauseFailedError(Exception):
    """The engine violates a MUST."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


class ClauseItem(pytest.Item):
    """One clause.

    A violated MUST fails; a violated SHOULD is an expected failure. A clause without a result, or for other engines,
    is skipped with its reason.
    """

    def __init__(self, *, holding: Holding, clause: Clause, **kwargs: Any) -> None:
        cast("Any", super()).__init__(**kwargs)
        self._holding, self._clause = holding, clause
        self.user_properties.append(("level", clause.level.value))
        self.user_properties.append(("sentence", clause.sentence))
        self.user_properties.append(("source", clause.source))

    def runtest(self) -> None:
        finding = self._holding.finding(self._clause)
        if finding.verdict is Verdict.PASSED:
            return
        if finding.verdict is not Verdict.FAILED:
            pytest.skip(f"{finding.verdict}: {finding.reason}")
        if self._clause.level is Level.SHOULD:
            pytest.xfail(f"{self._clause.sentence} {finding.reason}")
        raise ClauseFailedError(finding)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the clause, the reason, the features that still work, and the exchanges as evidence."""
        if not isinstance(excinfo.value, ClauseFailedError):
            return super().repr_failure(excinfo, style)
        finding = excinfo.value.finding
        clause = finding.clause
        lines = [f"{clause.id} {clause.level}: {clause.sentence}", f"({clause.source})", finding.reason]
        lines.append(readers_of(finding, self._holding.protocol.needs))
        return "\n".join([*filter(None, lines), *(f"\n{evidence(exchange)}" for exchange in finding.exchanges)])

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the name of the item for verbose runs and JUnit."""
        return self.path, None, f"{self._holding.protocol.name}::{self._clause.id} {self._clause.sentence}"


def _node(kind: Any, parent: pytest.Collector, **fields: Any) -> Any:
    """Create a pytest node through a method that type checkers cannot follow."""
    return kind.from_parent(parent, **fields)


def _wish(config: pytest.Config) -> Wish:
    def given(name: str) -> Any:
        return config.getoption(f"conform_{name}")

    return Wish(
        url=given("url"),
        protocol=given("protocol") or PROTOCOLS[0].name,
        model=given("model"),
        task_type=given("task_type"),
        images=given("image"),
        headers=given("header"),
        header_file=given("header_file"),
        health_path=given("health_path"),
        request=given("request"),
        timeout=given("timeout"),
        max_requests=given("max_requests"),
        trust=Trust(ca=given("ca"), cert=given("cert"), key=given("key")),
    )
