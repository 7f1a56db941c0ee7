"""``charioteer conform``."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import httpx
import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from rich.console import Console
from rich.markup import escape

from app.cli.terminal import console
from app.conformance.clause import Clause
from app.conformance.holding import UnreachableError, held_against
from app.conformance.output.html import html_report
from app.conformance.output.junit import junit_report
from app.conformance.output.plain import json_report
from app.conformance.output.table import print_report
from app.conformance.pictures import picture_of
from app.conformance.probe import Probe, Target
from app.conformance.protocols import PROTOCOLS

__all__ = ("conform",)

_FAILED, _UNREACHABLE = 1, 2
_TaskType = Literal[
    "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION", "IMAGE_TEXT_TO_TEXT"
]


def conform(
    url: str,
    *,
    protocol: str = PROTOCOLS[0].name,
    model: str | None = None,
    task_type: _TaskType | None = None,
    image: list[ExistingFile] | None = None,
    header: list[str] | None = None,
    health_path: str | None = None,
    request: ExistingFile | None = None,
    timeout: float = 30,
    max_requests: int = 400,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    json: Path | None = None,
    junit: Path | None = None,
    html: Path | None = None,
) -> None:
    """Hold any engine against a protocol, clause by clause.

    Exits with 0 when every MUST is kept, as far as it could be tested, with 1 when one is not, and with 2 when nothing
    answers.

    Args:
        url: Where the engine is; for Chariot's protocols, the base URL that /infer follows.
        protocol: What it should speak.
        model: The model's name, or Chariot id, in the paths.
        task_type: What the model does; found from its answers otherwise.
        image: Pictures in which the model finds something; some shapes are drawn otherwise, and besides.
        header: What the engine's gate asks for, such as "Authorization: Bearer ..."; not in any report.
        health_path: Where a platform would ask for health; the usual paths otherwise.
        request: The JSON body of an inference that the model can answer, for protocols of tensors; made up otherwise.
        timeout: Seconds to wait for an answer.
        max_requests: No more requests than this.
        everything: Also show what passed, and what is not about this engine.
        json: A file for the report as JSON.
        junit: A file for the report as JUnit XML.
        html: A file for the report as a page.
    """
    known = {each.name: each for each in PROTOCOLS}
    if protocol not in known:
        _stop(f"--protocol: Expected one of {', '.join(known)}, got {protocol}")
    if not url.startswith(("http://", "https://")):
        _stop(f"Expected a URL that begins with http:// or https://, got {url}")
    try:
        pictures = [picture_of(each.name, each.read_bytes()) for each in image or ()]
    except ValueError as error:
        _stop(f"--image: {error}")
    target = Target(
        url=url,
        model=model,
        task_type=task_type,
        pictures=pictures,
        health_path=health_path,
        request=_request(request) if request else None,
    )
    with httpx.Client(timeout=timeout, headers=_headers(header or ()), trust_env=False) as client:
        progress = Console(stderr=True)
        with progress.status("Asking ...") as status:

            def told(clause: Clause) -> None:
                status.update(f"{clause.id} {escape(clause.sentence)}")

            try:
                report = held_against(known[protocol], Probe(client, target, max_requests), told)
            except UnreachableError as error:
                _stop(str(error))
    print_report(report, console(), everything=everything)
    for path, made in ((json, json_report), (junit, junit_report), (html, html_report)):
        if path:
            path.write_bytes(made(report))
    if not report.conforms:
        sys.exit(_FAILED)


def _headers(lines: list[str] | tuple[str, ...]) -> dict[str, str]:
    read: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isascii():
            _stop(f'--header: Expected "Name: value", got {line}')
        read[name.strip()] = value.strip()
    return read


def _request(path: Path) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except msgspec.DecodeError as error:
        _stop(f"--request: {error}")


def _stop(reason: str) -> NoReturn:
    """End with the status of an engine that could not be asked."""
    sys.stderr.write(f"charioteer: {reason}\n")
    sys.exit(_UNREACHABLE)
