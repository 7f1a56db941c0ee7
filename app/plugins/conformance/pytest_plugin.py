"""Run conformance checks as pytest items: each passes, fails, or is skipped with a reason.

``charioteer_pytest`` loads this module if ``--conform-url`` is given.
"""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from app.plugins.client_options.credentials import TlsOptions
from app.plugins.conformance.check import Check, Level, Verdict
from app.plugins.conformance.options import ConformanceOptions, OptionsError, open_runner
from app.plugins.conformance.output.reports import describe_failure
from app.plugins.conformance.runner import CheckRunner, UnreachableError


class Conformance:
    """The pytest plugin of one run. Raise pytest.UsageError if an option is not valid."""

    def __init__(self, config: pytest.Config) -> None:
        stack = ExitStack()
        try:
            self._runner = stack.enter_context(open_runner(str(config.getoption("conform_url")), _options(config)))
        except OptionsError as error:
            raise pytest.UsageError(f"--conform-...: {error}") from None
        config.add_cleanup(stack.close)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Append the checks to the collected items, so that ``-k`` and ``-m`` select among them."""
        name = self._runner.protocol.name
        engine = _node(EngineCollector, session, name=name, nodeid=f"charioteer::{name}", runner=self._runner)
        items.extend(engine.collect())


class EngineCollector(pytest.Collector):
    """The collector for an engine's checks."""

    def __init__(self, *, runner: CheckRunner, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.runner = runner

    def collect(self) -> Generator[pytest.Item]:
        """Yield one item for each check."""
        for check in self.runner.protocol.checks:
            yield _node(CheckItem, self, name=check.id, runner=self.runner, check=check)

    def setup(self) -> None:
        """Send one request; without a response, every check is an error with the reason."""
        try:
            self.runner.check_reachable()
        except UnreachableError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None


class CheckItem(pytest.Item):
    """One check.

    A violated MUST fails; a violated SHOULD is an expected failure. A check without a result, or for other engines,
    is skipped with its reason.
    """

    def __init__(self, *, runner: CheckRunner, check: Check, **kwargs: Any) -> None:
        cast("Any", super()).__init__(**kwargs)
        self._runner, self._check = runner, check
        self.user_properties.append(("level", check.level.value))
        self.user_properties.append(("sentence", check.sentence))
        self.user_properties.append(("source", check.source))

    def runtest(self) -> None:
        finding = self._runner.finding(self._check)
        if finding.verdict is Verdict.PASSED:
            return
        if finding.verdict is not Verdict.FAILED:
            pytest.skip(f"{finding.verdict}: {finding.reason}")
        if self._check.level is Level.SHOULD:
            pytest.xfail(f"{self._check.sentence} {finding.reason}")
        raise pytest.fail.Exception(describe_failure(finding, self._runner.protocol.needs), pytrace=False)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the name of the item for verbose runs and JUnit."""
        return self.path, None, f"{self._runner.protocol.name}::{self._check.id} {self._check.sentence}"


def _node(node_class: Any, parent: pytest.Collector, **fields: Any) -> Any:
    """Create a pytest node through a method that type checkers cannot follow."""
    return node_class.from_parent(parent, **fields)


def _options(config: pytest.Config) -> ConformanceOptions:
    def values(options: type[ConformanceOptions | TlsOptions]) -> dict[str, Any]:
        """Return the values of the options that are set."""
        found = {name: config.getoption(f"conform_{name}", None) for name in options.__dataclass_fields__}
        return {name: value for name, value in found.items() if value is not None}

    return ConformanceOptions(**values(ConformanceOptions), tls=TlsOptions(**values(TlsOptions)))
