"""Find the inference that a request asks for."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec

from app.core.engine.engine import Engine
from app.core.protocols.http_inference import error_response
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, StartCall
from tasks.inference.error import InferenceError

_PARAMETER = re.compile(r"\{(\w+):(\w+)\}")
_DIGITS = r"\d+"
_SLASHES = re.compile("/{2,}")


class Route(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An inference of a protocol: its endpoint, whose `start` it has, and its answers for errors."""

    protocol: HttpProtocol
    endpoint: Endpoint
    start: StartCall
    error_response: Callable[[InferenceError], HttpResponse]


class RouteTable:
    """Find the inference endpoints of one port, in the order of the dispatcher: endpoints with a claim come first.

    A protocol with a port of its own compares paths as they were received, and knows no slash at the end.
    """

    def __init__(self, engine: Engine, protocols: Sequence[HttpProtocol]) -> None:
        self._is_raw = any(isinstance(protocol, HttpListener) for protocol in protocols)
        by_pattern: dict[str, list[Route]] = {}
        for protocol in protocols:
            for endpoint in protocol.endpoints(engine):
                if endpoint.start is not None:
                    route = _route(protocol, endpoint, endpoint.start)
                    by_pattern.setdefault(self._pattern_of(endpoint), []).append(route)
        self._routes: dict[str, Sequence[Route]] = {}
        self._names: dict[str, Sequence[tuple[str, str]]] = {}
        parts: list[str] = []
        for index, (pattern, routes) in enumerate(by_pattern.items()):
            # The last group that closes is the outermost one, so `lastgroup` names the route.
            group = f"r{index}"
            parts.append(f"(?P<{group}>{pattern.replace('(?P<', f'(?P<{group}_')})")
            self._routes[group] = sorted(routes, key=lambda route: route.endpoint.accepts_target is None)
            names = _PARAMETER.findall(routes[0].endpoint.path)
            self._names[group] = [(name, f"{group}_{name}") for name, _ in names]
        flags = re.IGNORECASE | re.ASCII if self._is_raw else 0
        self._pattern = re.compile("|".join(parts) or "(?!)", flags)

    def find(self, scope: Mapping[str, Any]) -> tuple[Route, Mapping[str, str]] | None:
        """Return the route of a POST request and the parameters of its path; None if it is no inference."""
        if self._is_raw:
            # A query makes the path another one there.
            path = "" if scope["query_string"] else scope["raw_path"].decode("latin-1").partition("?")[0]
        else:
            path = scope["path"]
            if root_path := scope.get("root_path"):
                path = path.removeprefix(root_path)
            if "//" in path or path.endswith("/"):
                # The framework ignores slashes at the end, and repeated ones.
                path = _SLASHES.sub("/", path.rstrip("/"))
        match = self._pattern.fullmatch(path)
        if match is None or match.lastgroup is None:
            return None
        parameters = {name: match[group] for name, group in self._names[match.lastgroup]}
        if self._is_raw:
            parameters = {name: unquote(value) for name, value in parameters.items()}
        for route in self._routes[match.lastgroup]:
            accepts = route.endpoint.accepts_target
            if accepts is None or accepts(parameters.get("target", "")):
                return route, parameters
        return None

    def _pattern_of(self, endpoint: Endpoint) -> str:
        """Return the pattern of a path, with a group for each parameter."""
        # A model without a name is an error of the protocol.
        text = "[^/:]+" if self._is_raw else "[^/]+" if endpoint.verb is None else "[^/]*"

        def group(match: re.Match[str]) -> str:
            return f"(?P<{match[1]}>{_DIGITS if match[2] == 'int' else text})"

        path = _PARAMETER.sub(group, endpoint.path)
        return path if endpoint.verb is None else f"{path}:(?-i:{endpoint.verb})"


def _route(protocol: HttpProtocol, endpoint: Endpoint, start: StartCall) -> Route:
    def answer(error: InferenceError) -> HttpResponse:
        status = endpoint.statuses.get(error.kind)
        found = default(error)
        return found if status is None else msgspec.structs.replace(found, status=status)

    default = protocol.error_response if isinstance(protocol, HttpListener) else partial(error_response, protocol)
    return Route(protocol=protocol, endpoint=endpoint, start=start, error_response=answer)
