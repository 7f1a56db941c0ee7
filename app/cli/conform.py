"""``charioteer conform``."""

import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from cyclopts import Parameter
from cyclopts.types import ExistingFile
from rich.console import Console
from rich.markup import escape

from app.cli.terminal import console
from app.conformance.clause import Clause
from app.conformance.holding import Report, UnreachableError
from app.conformance.output.clauses import print_clauses
from app.conformance.output.html import html_report
from app.conformance.output.junit import junit_report
from app.conformance.output.plain import json_report
from app.conformance.output.table import print_report
from app.conformance.protocols import PROTOCOLS
from app.conformance.trust import Trust
from app.conformance.wish import Wish, WishError, holding

__all__ = ("conform",)

_FAILED, _UNREACHABLE = 1, 2
_TaskType = Literal[
    "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION", "IMAGE_TEXT_TO_TEXT"
]


def conform(
    url: str | None = None,
    *,
    protocol: str = PROTOCOLS[0].name,
    model: str | None = None,
    task_type: _TaskType | None = None,
    image: list[ExistingFile] | None = None,
    header: list[str] | None = None,
    header_file: ExistingFile | None = None,
    health_path: str | None = None,
    request: ExistingFile | None = None,
    timeout: float = 30,
    max_requests: int = 400,
    ca: ExistingFile | None = None,
    cert: ExistingFile | None = None,
    key: ExistingFile | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    listing: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: Path | None = None,
    junit: Path | None = None,
    html: Path | None = None,
) -> None:
    """Hold any engine against a protocol, clause by clause.

    Exits with 0 when every MUST is kept, as far as it could be tested, with 1 when one is not, and with 2 when nothing
    answers, or a MUST was not tested because of who asks, or the options make no sense.

    Args:
        url: Where the engine is; for Chariot's protocols, the base URL that /infer follows; for protocols over gRPC,
            grpc://host:port, or grpcs:// for TLS.
        protocol: What it should speak.
        model: The model's name, or Chariot id, in the paths.
        task_type: What the model does; found from its answers otherwise.
        image: Pictures in which the model finds something; some shapes are drawn otherwise, and besides.
        header: What the engine's gate asks for, such as "Authorization: Bearer ..."; not in any report; metadata over
            gRPC.
        header_file: A file of such lines, for keys that are not to stand in the list of processes.
        health_path: Where a platform would ask for health; the usual paths otherwise.
        request: The JSON body of an inference that the model can answer, for protocols of tensors; made up otherwise.
        timeout: Seconds to wait for an answer.
        max_requests: No more requests than this.
        ca: Authorities to trust over TLS, instead of the usual ones (PEM).
        cert: A certificate to show to an engine that asks for one (PEM).
        key: Its private key, where it is not in the same file.
        everything: Also show what passed, and what is not about this engine.
        listing: Only say how many clauses each protocol has, and, with --all, what the protocol's clauses are.
        json: A file for the report as JSON.
        junit: A file for the report as JUnit XML.
        html: A file for the report as a page.
    """
    if listing:
        _list(protocol if everything else None)
        return
    if url is None:
        _stop("Expected the URL of an engine, got none")
    wish = Wish(
        url=url,
        protocol=protocol,
        model=model,
        task_type=task_type,
        images=image or (),
        headers=header or (),
        header_file=header_file,
        health_path=health_path,
        request=request,
        timeout=timeout,
        max_requests=max_requests,
        trust=Trust(ca=ca, cert=cert, key=key),
    )
    try:
        report = _found(wish)
    except (UnreachableError, WishError) as error:
        _stop(str(error))
    print_report(report, console(), everything=everything)
    for path, made in ((json, json_report), (junit, junit_report), (html, html_report)):
        if path:
            _write(path, made(report))
    if not report.conforms:
        sys.exit(_FAILED)
    if report.barred:
        # Or a run with a key that is over, or for something else, would be green.
        named = ", ".join(report.barred)
        _stop(f"{named}: who sends the requests is refused; give what the gate asks for with --header-file")


def _list(protocol: str | None) -> None:
    known = [each.name for each in PROTOCOLS]
    if protocol not in (None, *known):
        _stop(f"--protocol: Expected one of {', '.join(known)}, got {protocol}")
    print_clauses(console(), protocol)


def _found(wish: Wish) -> Report:
    with holding(wish) as held, Console(stderr=True).status("Asking ...") as status:

        def told(clause: Clause) -> None:
            status.update(f"{clause.id} {escape(clause.sentence)}")

        held.reach()
        return held.report(told)


def _write(path: Path, report: bytes) -> None:
    try:
        path.write_bytes(report)
    except OSError as error:
        _stop(f"the report was not written: {error}")


def _stop(reason: str) -> NoReturn:
    """End with the status of an engine that could not be asked."""
    sys.stderr.write(f"charioteer: {reason}\n")
    sys.exit(_UNREACHABLE)
