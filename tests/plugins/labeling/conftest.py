"""A web server for images."""

from collections.abc import Generator

import pytest

from tests.plugins.labeling.site import Site


@pytest.fixture
def site() -> Generator[Site]:
    with Site() as site:
        yield site
