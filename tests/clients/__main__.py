"""Run every foreign client against a server, and print which of its calls work: ``python -m tests.clients``."""

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
_CALL = re.compile(r"^(with_\w+) check_(\w+) (passed|failed)$", re.MULTILINE)
_SNIPPET = re.compile(r"test_snippet_prints_documented_output\[(.+)\]$")
_PURPOSE = re.compile(r'^"""Check (.+?)(?: against a server)?: ')


class CallTable:
    """A pytest plugin that collects the calls of each client with their results."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, str]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        if (snippet := _SNIPPET.search(report.nodeid)) is not None:
            self._results["snippets of docs/clients.md"][snippet[1]] = report.outcome
        for script, call, result in _CALL.findall(report.capstdout):
            # One script checks two clients of Triton: a call passes if both pass.
            results = self._results[_client_of(script)]
            results[call.replace("_", " ")] = "failed" if results.get(call.replace("_", " ")) == "failed" else result

    def markdown(self) -> str:
        """Return a row for each client: its calls, how many passed, and which did not."""
        lines = ["| client | calls | passed |", "| --- | --- | --- |"]
        for client, results in sorted(self._results.items(), key=lambda pair: pair[0].lower()):
            others = [f"{call} {result}" for call, result in results.items() if result != "passed"]
            count = f"{len(results) - len(others)} of {len(results)}"
            lines.append(f"| {client} | {', '.join(results)} | {'; '.join([count, *others])} |")
        return "\n".join(lines) + "\n"


def _client_of(script: str) -> str:
    match = _PURPOSE.match((FOLDER / f"{script}.py").read_text())
    return match[1] if match is not None else script


if __name__ == "__main__":
    table = CallTable()
    status = pytest.main([str(FOLDER), "-m", "slow", "--quiet", "-p", "no:cacheprovider"], plugins=[table])
    sys.stdout.write(f"\n{table.markdown()}")
    sys.exit(status)
