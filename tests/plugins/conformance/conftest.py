"""Our engines, shared by all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.plugins.conformance.engines import Engines, open_engines


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with open_engines() as engines:
        yield engines
