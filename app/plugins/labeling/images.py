"""Read the images of tasks: data URIs, and files of Label Studio and of listed hosts. Requests choose no other host."""

import asyncio
import ipaddress
import logging
import re
import ssl
import time
from base64 import urlsafe_b64encode

import httpx
import msgspec

from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.server import SettingsError
from app.core.wire.data_url import decode_data_url, media_type_of
from app.plugins.labeling.settings import LabelStudioSettings
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.vision.header import image_size

_logger = logging.getLogger(__name__)

_SECONDS = 10.0
"""Time limit of one image, with its redirects."""
_MAX_REDIRECTS = 3
_CLOUD_URI = re.compile(r"(?:s3|gs|azure-blob)://")
_LABEL_STUDIO_PATHS = ("/data/", "/storage-data/", "/tasks/")
"""Its key must not read anything else, such as its users."""
_PORTS = {"http": 80, "https": 443}
_TOKEN_SECONDS = 240
"""A JSON Web Token of Label Studio is valid for five minutes."""
_MAX_TOKEN_BYTES = 64 * 1024

_Origin = tuple[str, str, int]
"""The scheme, the name and the port of a host."""
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ImageReader:
    """Read images for `settings`.

    Raise SettingsError if an address, a host or a network is invalid, or the file of the key is not readable.
    """

    def __init__(self, settings: LabelStudioSettings) -> None:
        self._url = settings.label_studio_url.rstrip("/")
        self._origin = _read_origin("--label-studio-url", self._url) if self._url else None
        url = httpx.URL(self._url)
        self._base_path, self._root = url.path.rstrip("/"), f"{url.scheme}://{url.netloc.decode()}"
        self._hosts = {
            _read_origin("--label-studio-image-hosts", host) for host in _items(settings.label_studio_image_hosts)
        }
        self._networks = [_read_network(text) for text in _items(settings.label_studio_networks)]
        self._key: WatchedFile[str] | None = None
        if settings.label_studio_key is not None:
            self._key = WatchedFile(
                settings.label_studio_key, lambda content: content.decode().strip(), "--label-studio-key"
            )
        self._token = ("", 0.0)
        self._trust = ssl.create_default_context()
        # httpx logs every URL, and URLs of buckets contain signatures.
        logging.getLogger("httpx").setLevel(logging.WARNING)

    async def read(self, value: str, task: object, limits: Limits) -> bytes:
        """Return the image file that a task names.

        Raise INVALID_REQUEST if it cannot be read, or its host is not listed; TOO_LARGE.

        Args:
            value: a data URI, a path of Label Studio, the URI of a bucket, or a URL of a listed host.
            task: the id of the task, through which Label Studio signs URIs of buckets.
            limits: the limits on requests, which are those on the file.
        """
        if media_type_of(value) is not None:
            return decode_data_url(value)
        try:
            # Without reuse, a connection for one host serves no other host with the same address.
            pool = httpx.Limits(max_keepalive_connections=0)
            async with (
                asyncio.timeout(_SECONDS),
                httpx.AsyncClient(verify=self._trust, trust_env=False, limits=pool) as client,
            ):
                data = await self._download(client, self._address(value, task), limits.max_request_bytes)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, OSError, LookupError, ValueError) as error:
            # The reason may contain an address of the internal network.
            _logger.warning("an image for labelling could not be read: %s: %s", type(error).__name__, error)
            raise invalid(f"The image could not be read ({type(error).__name__}); see the log of the server") from None
        try:
            image_size(data, allow_avif_jpeg2000=limits.allow_avif_jpeg2000)
        except InferenceError:
            # Other errors about images quote their first bytes.
            raise invalid("Expected the address of an image, got another file") from None
        return data

    def _address(self, value: str, task: object) -> httpx.URL:
        """Return the URL of an image, whose host is not checked yet."""
        if not self._url and not value.startswith(("http:", "https:")):
            raise invalid("Expected a data URI: reading images of Label Studio needs --label-studio-url of the server")
        if _CLOUD_URI.match(value):
            encoded = urlsafe_b64encode(value.encode()).decode()
            value = f"{self._url}/tasks/{int(str(task))}/presign/?fileuri={encoded}"
        elif value.startswith("upload/"):
            value = f"{self._url}/data/{value}"
        elif value.startswith("/"):
            # Behind a proxy with a path, Label Studio writes it into the paths of uploaded images.
            has_base = self._base_path and value.startswith(f"{self._base_path}/")
            value = (self._root if has_base else self._url) + value
        return httpx.URL(value)

    async def _download(
        self, client: httpx.AsyncClient, url: httpx.URL, max_bytes: int, refresh: str | None = None
    ) -> bytes:
        """Return the content of a URL, behind at most `_MAX_REDIRECTS` redirects; with `refresh`, of a new token."""
        for redirects in range(_MAX_REDIRECTS + 1):
            address = await self._resolve(url, is_redirect=redirects > 0)
            headers = {"Host": url.netloc.decode(), "Accept-Encoding": "identity"}
            if refresh is None and _origin_of(url) == self._origin:
                path = url.path.removeprefix(self._base_path)
                if not path.startswith(_LABEL_STUDIO_PATHS) or "/.." in path:
                    raise invalid(f"Expected an image of Label Studio, below {', '.join(_LABEL_STUDIO_PATHS)}")
                headers |= await self._authorization(client)
            # Connect to the address that was checked: the name may mean another one a moment later.
            request = client.build_request(
                "GET" if refresh is None else "POST",
                url.copy_with(host=address),
                headers=headers,
                json=refresh and {"refresh": refresh},
                extensions={"sni_hostname": url.host},
            )
            response = await client.send(request, stream=True)
            try:
                if response.has_redirect_location and refresh is None:
                    url = url.join(response.headers["location"])
                    continue
                if not response.is_success:
                    raise invalid(f"Expected an image, got the status {response.status_code} from {url.host}")
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > max_bytes:
                        raise too_large(max_bytes, "bytes in an image")
                return bytes(content)
            finally:
                await response.aclose()
        raise invalid(f"Expected an image behind at most {_MAX_REDIRECTS} redirects, got more")

    async def _resolve(self, url: httpx.URL, *, is_redirect: bool) -> str:
        """Return an address of a listed host, in an allowed network."""
        origin = scheme, host, port = _origin_of(url)
        if origin != self._origin and origin not in self._hosts:
            # Only the operator learns where redirects lead.
            _logger.warning("an image for labelling is at a host that is not listed: %s", f"{scheme}://{host}:{port}")
            name = "A redirect leads to a host that" if is_redirect else f"The host {host!r}"
            raise invalid(f"{name} is not listed in --label-studio-image-hosts of the server")
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
        for address in [str(address[0]) for *_, address in found]:
            if origin == self._origin or self._is_allowed(address):
                return address
        raise invalid(f"The host {host!r} is in no network of --label-studio-networks of the server")

    def _is_allowed(self, text: str) -> bool:
        address = ipaddress.ip_address(text.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return (address.is_global and not address.is_multicast) or any(address in network for network in self._networks)

    async def _authorization(self, client: httpx.AsyncClient) -> dict[str, str]:
        """Return the header with the key of Label Studio, or with the token that it gives for a key."""
        key = self._key.value if self._key is not None else ""
        if key.count(".") != 2:
            return {"Authorization": f"Token {key}"} if key else {}
        token, expiry = self._token
        if time.monotonic() > expiry:
            url = httpx.URL(f"{self._url}/api/token/refresh")
            body = await self._download(client, url, _MAX_TOKEN_BYTES, refresh=key)
            token = msgspec.json.decode(body, type=dict[str, str])["access"]
            self._token = token, time.monotonic() + _TOKEN_SECONDS
        return {"Authorization": f"Bearer {token}"}


def _items(text: str) -> list[str]:
    return [item for item in map(str.strip, text.split(",")) if item]


def _origin_of(url: httpx.URL) -> _Origin:
    return url.scheme, url.host, url.port or _PORTS.get(url.scheme, 0)


def _read_origin(option: str, text: str) -> _Origin:
    try:
        url = httpx.URL(text if "://" in text else f"https://{text}")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in _PORTS or not url.host or url.userinfo:
        raise SettingsError(f"{option}: Expected a host, or http(s)://host:port, got {text!r}")
    return _origin_of(url)


def _read_network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise SettingsError(f"--label-studio-networks: {error}") from None
