"""Which hosts images of tasks are read from, and what these hosts receive."""

import asyncio
import json
import socket
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import trustme

from app.core.plugins import registry
from app.core.settings.server import SettingsError
from app.plugins.evaluation.truths.label_studio import name_of_image, path_of_image
from app.plugins.labeling.images import ImageReader
from app.plugins.labeling.settings import LabelStudioSettings
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tests.plugins.labeling.conftest import IMAGE, Site

TOKEN = "header.payload.signature"


@pytest.fixture
def bucket() -> Generator[Site]:
    with Site() as bucket:
        yield bucket


def reader(**options: Any) -> ImageReader:
    options = {f"label_studio_{name}": value for name, value in options.items()}
    return ImageReader(registry().settings(**options).of(LabelStudioSettings))


def read(image_reader: ImageReader, value: str, max_bytes: int = 1000) -> bytes:
    return asyncio.run(image_reader.read(value, 7, Limits(max_request_bytes=max_bytes)))


def rejection(image_reader: ImageReader, value: str, max_bytes: int = 1000) -> str:
    with pytest.raises(InferenceError) as caught:
        read(image_reader, value, max_bytes)
    return str(caught.value)


NOT_LISTED = "is not listed in --label-studio-image-hosts"
NO_NETWORK = "is in no network of --label-studio-networks"
NO_IMAGE_PATH = "Expected an image of Label Studio, below /data/"
NO_LABEL_STUDIO = "needs --label-studio-url"
# A server on this machine, which must receive nothing.
HERE = "http://127.0.0.1:PORT"


@pytest.mark.parametrize(
    ("value", "options", "error_text"),
    [
        ("http://localhost:PORT/image", {"url": "http://127.0.0.1:1"}, NOT_LISTED),
        (f"{HERE}/image", {"url": "http://127.0.0.1:1"}, NOT_LISTED),
        ("https://127.0.0.1:PORT/image", {"url": HERE}, NOT_LISTED),
        ("http://127.0.0.1@127.0.0.1:PORT/image", {"image_hosts": "http://127.0.0.1"}, NOT_LISTED),
        ("http://2130706433:PORT/image", {"image_hosts": HERE}, NOT_LISTED),
        (f"{HERE}/image", {"image_hosts": "127.0.0.1:PORT"}, NOT_LISTED),
        (f"{HERE}/image", {"image_hosts": HERE}, NO_NETWORK),
        ("http://localhost:PORT/image", {"image_hosts": "http://localhost:PORT"}, NO_NETWORK),
        ("http://[::ffff:127.0.0.1]:PORT/image", {"image_hosts": "http://[::ffff:127.0.0.1]:PORT"}, NO_NETWORK),
        (f"{HERE}/image", {"image_hosts": HERE, "networks": "10.0.0.0/8"}, NO_NETWORK),
        ("http://169.254.169.254/latest", {"image_hosts": "http://169.254.169.254"}, NO_NETWORK),
        ("http://[fd00::1]/image", {"image_hosts": "http://[fd00::1]"}, NO_NETWORK),
        ("/data/upload/1/image", {"image_hosts": HERE}, NO_LABEL_STUDIO),
        ("s3://bucket/image", {}, NO_LABEL_STUDIO),
        ("file:///etc/passwd", {}, NO_LABEL_STUDIO),
        ("file:///etc/passwd", {"url": HERE}, NOT_LISTED),
        ("ftp://127.0.0.1:PORT/image", {"url": HERE}, NOT_LISTED),
        ("//127.0.0.1:PORT/image", {}, NO_LABEL_STUDIO),
        (f"{HERE}/api/users", {"url": HERE}, NO_IMAGE_PATH),
        ("/user/login/", {"url": HERE}, NO_IMAGE_PATH),
        ("/data/../api/users", {"url": HERE}, NO_IMAGE_PATH),
        ("/data/%2e%2e/api/users", {"url": HERE}, NO_IMAGE_PATH),
        ("//images.test/data/a.png", {"url": HERE}, NO_IMAGE_PATH),
        ("/@images.test/data/a.png", {"url": HERE}, NO_IMAGE_PATH),
        ("http://images.test:port/", {}, "could not be read (InvalidURL)"),
    ],
)
def test_host_that_is_not_configured_is_rejected_without_a_request(
    site: Site, value: str, options: dict[str, str], error_text: str
) -> None:
    port = str(site.port)
    options = {name: text.replace("PORT", port) for name, text in options.items()}
    assert error_text in rejection(reader(**options), value.replace("PORT", port))
    assert site.requests == []


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"url": "label.example.org:x"}, "--label-studio-url: Expected a host"),
        ({"url": "ftp://label.example.org"}, "--label-studio-url: Expected a host"),
        ({"image_hosts": "a.example.org, http://"}, "--label-studio-image-hosts: Expected a host"),
        ({"networks": "10.0.0.1/8"}, "--label-studio-networks: 10.0.0.1/8 has host bits set"),
        ({"key": Path("none")}, "none cannot be read"),
    ],
)
def test_invalid_option_stops_the_start(options: dict[str, Any], error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        reader(**options)
    assert error_text in str(caught.value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/data/upload/3/a.png?x=1", "/base/data/upload/3/a.png?x=1"),
        ("/base/data/upload/3/a.png", "/base/data/upload/3/a.png"),
        ("upload/3/a.png", "/base/data/upload/3/a.png"),
        ("s3://bucket/a.png", "/base/tasks/7/presign/?fileuri=czM6Ly9idWNrZXQvYS5wbmc="),
    ],
)
def test_paths_are_read_from_label_studio_with_its_key(site: Site, tmp_path: Path, value: str, path: str) -> None:
    (tmp_path / "key").write_text("abc\n")
    site.answers[path] = 200, {}, IMAGE
    assert read(reader(url=f"{site.url}/base/", key=tmp_path / "key"), value) == IMAGE
    ((requested, headers),) = site.requests
    assert requested == path
    assert (headers["authorization"], headers["host"]) == ("Token abc", f"127.0.0.1:{site.port}")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("/data/upload/2/49f53bcf-scene.jpg", "scene.jpg"),
        ("/data/local-files/?d=north%20side/a.png", "a.png"),
        ("/data/local-files/?d=north%5Ca.png", "a.png"),
        ("/data/local-files/?d=", ""),
        ("s3://bucket/folder/b.png", "b.png"),
        ("https://example.org/c%20d.png?key=1", "c d.png"),
        ("DATA:image/png;base64,AAAA", ""),
    ],
)
def test_name_of_the_image_is_known(value: str, name: str) -> None:
    assert name_of_image(path_of_image(value)) == name


def test_personal_token_is_exchanged_once(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(TOKEN)
    site.answers["/api/token/refresh"] = 200, {}, json.dumps({"access": "short"}).encode()
    image_reader = reader(url=site.url, key=tmp_path / "key")
    assert [read(image_reader, "/data/image"), read(image_reader, "/data/image")] == [IMAGE, IMAGE]
    assert [path for path, _ in site.requests] == ["/api/token/refresh", "/data/image", "/data/image"]
    assert [headers.get("authorization") for _, headers in site.requests] == [None, "Bearer short", "Bearer short"]


def test_redirect_reaches_listed_hosts_only_and_without_the_key(
    site: Site, bucket: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key").write_text("abc")
    site.answers["/data/there"] = 302, {"Location": f"{bucket.url}/image"}, b""
    options = {"url": site.url, "key": tmp_path / "key"}
    reason = rejection(reader(**options), "/data/there")
    assert "A redirect leads to a host that is not listed" in reason
    # Only the operator learns the address.
    assert str(bucket.port) not in reason
    assert bucket.url in caplog.text
    assert bucket.requests == []
    listed = reader(**options, image_hosts=bucket.url, networks="127.0.0.0/8")
    assert read(listed, "/data/there") == IMAGE
    ((_, headers),) = bucket.requests
    assert "authorization" not in headers
    bucket.answers["/image"] = 302, {"Location": "/image"}, b""
    assert "at most 3 redirects" in rejection(listed, "/data/there")
    site.answers["/data/there"] = 302, {"Location": "file:///etc/passwd"}, b""
    assert NOT_LISTED in rejection(listed, "/data/there")


def test_error_text_does_not_contain_the_body_and_images_have_a_limit(site: Site) -> None:
    site.answers["/data/text"] = 200, {}, b"secret text"
    images = reader(url=site.url)
    assert rejection(images, "/data/missing") == "Expected an image, got the status 404 from 127.0.0.1"
    assert rejection(images, "/data/text") == "Expected the address of an image, got another file"
    assert read(images, "/data/image", len(IMAGE)) == IMAGE
    assert f"Expected at most {len(IMAGE) - 1} bytes" in rejection(images, "/data/image", len(IMAGE) - 1)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the name images.test the addresses in the list, each once."""
    addresses: list[str] = []
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        return resolve(addresses.pop(0) if host == "images.test" else host, port, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


def test_connection_goes_to_the_address_that_was_checked(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued: Any = authority.issue_cert("images.test")
    issued.configure_cert(context)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with Site(context) as secure:
        host = f"images.test:{secure.port}"
        image_reader = reader(image_hosts=host, networks="127.0.0.1/32")
        # A second look-up of the name would find no address.
        names.append("127.0.0.1")
        assert read(image_reader, f"https://{host}/image") == IMAGE
        ((_, headers),) = secure.requests
        assert headers["host"] == host
        names.append("127.0.0.2")
        assert NO_NETWORK in rejection(image_reader, f"https://{host}/image")
        # The certificate is for the name, not for the address.
        other = reader(image_hosts=f"127.0.0.1:{secure.port}", networks="127.0.0.1/32")
        assert "could not be read (ConnectError)" in rejection(other, f"https://127.0.0.1:{secure.port}/image")
