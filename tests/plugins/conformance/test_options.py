"""Options of a run are applied, or rejected before the first request."""

import base64
from pathlib import Path
from typing import Any

import pytest

from app.plugins.conformance.check import Check
from app.plugins.conformance.options import ConformanceOptions, OptionsError, open_runner
from tests.plugins.conformance.tiny_engine import tiny_engine
from tests.support.servers.server_process import ROOT

NOWHERE = Path("nowhere.json")


def test_options_are_applied_to_the_run() -> None:
    reported: list[Check] = []
    with tiny_engine() as url:
        options = ConformanceOptions(protocol="v1", header=["X-Gate: open"], image=[ROOT / "fixtures/images/scene.jpg"])
        with open_runner(url, options) as runner:
            assert runner.probe.client.headers["x-gate"] == "open"
            assert [image.name for image in runner.probe.target.images] == ["scene.jpg"]
            runner.check_reachable()
            report = runner.report(reported.append)
    assert report.conforms
    assert [check.id for check in reported] == [finding.check.id for finding in report.findings]


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"url": "ftp://engine.local"}, "http:// or https:// for chariot-v2-kserve, got ftp://engine.local"),
        ({"url": "http://"}, "with a host"),
        ({"url": "http://[::1"}, "Invalid IPv6 URL"),
        ({"protocol": "v2-grpc"}, "grpc:// or grpcs:// for v2-grpc"),
        ({"protocol": "soap"}, "--protocol: Expected one of chariot-v2-kserve, "),
        ({"task_type": "CATS"}, "--task-type: Expected one of IMAGE_CLASSIFICATION, "),
        ({"health_path": "ready"}, "--health-path: Expected a path that begins with /, got 'ready'"),
        ({"health_path": "/a\n"}, "--health-path: Expected a path that begins with /"),
        ({"header": ("Content-Length: 3",)}, "--header: content-length describes a body"),
        ({"url": "engine:1", "protocol": "v2-grpc", "header": ("a-bin: secret",)}, "--header: gRPC accepts names"),
        ({"url": "http://engine.local/?key=secret"}, "Expected a URL without ? and #"),
        ({"image": (NOWHERE,)}, "--image: [Errno 2] No such file or directory"),
        ({"image": (ROOT / "README.md",)}, "--image: README.md: Expected an encoded image"),
        ({"request": NOWHERE}, "--request: [Errno 2] No such file or directory"),
        ({"request": ROOT / "README.md"}, "--request: JSON is malformed"),
    ],
)
def test_invalid_option_is_rejected(invalid: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"url": "http://engine.local", **invalid}
    url = options.pop("url")
    with pytest.raises(OptionsError) as raised, open_runner(url, ConformanceOptions(**options)):
        pass
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("content", [b'{"instances": ["\xe9"]}', b'{"instances": ' + 100_000 * b"["])
def test_request_that_cannot_be_decoded_is_rejected(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(content)
    options = ConformanceOptions(request=file)
    with pytest.raises(OptionsError, match=r"^--request: "), open_runner("engine", options):
        pass


def test_password_in_url_is_sent_and_not_reported() -> None:
    with open_runner("http://someone:s%40cret@engine.local:8000/base", ConformanceOptions()) as runner:
        assert runner.probe.target.url == "http://engine.local:8000/base"
        credentials = runner.probe.client.headers["authorization"].removeprefix("Basic ")
        assert base64.b64decode(credentials) == b"someone:s@cret"


@pytest.mark.parametrize(
    ("url", "protocol", "expected"),
    [
        ("engine.local:8080", "kserve-v2", ("http://engine.local:8080", "v2")),
        ("engine.local", "kserve-v1", ("http://engine.local", "v1")),
        ("HTTP://engine.local", "kserve-v1", ("http://engine.local", "v1")),
        ("engine.local:8081", "kserve-v2-grpc", ("grpc://engine.local:8081", "v2-grpc")),
    ],
)
def test_address_without_scheme_and_other_protocol_names_are_accepted(
    url: str, protocol: str, expected: tuple[str, str]
) -> None:
    with open_runner(url, ConformanceOptions(protocol=protocol)) as runner:
        assert (runner.probe.target.url, runner.protocol.name) == expected
