"""A web server that stands for Label Studio, a bucket, or a server that must receive nothing."""

import ssl
from collections.abc import Generator, Mapping
from contextlib import ExitStack

import pytest

from tests.support.data.images import encode_image, rectangle
from tests.support.servers.stand_in import Answer, Request, run_stand_in

IMAGE = encode_image(rectangle())


class Site(ExitStack):
    """A web server on this machine. `answers` has a status, headers and a body for each path."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.requests: list[tuple[str, Mapping[str, str]]] = []
        self.answers: dict[str, Answer] = {path: (200, {}, IMAGE) for path in ("/image", "/data/image")}
        address = self.enter_context(run_stand_in(self._answer, context))
        self.url, self.port = f"http://{address}", int(address.rpartition(":")[2])

    def _answer(self, request: Request) -> Answer:
        self.requests.append((request.path, request.headers))
        return self.answers.get(request.path, (404, {}, b"secret text of an error"))


@pytest.fixture
def site() -> Generator[Site]:
    with Site() as site:
        yield site
