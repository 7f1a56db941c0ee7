"""``charioteer conform``."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from app.core.cli.terminal import FAILED, check_output, console, progress, reject_unused, stop
from app.core.engine.error_text import sentence_of
from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError
from app.plugins.conformance.model_names import list_models
from app.plugins.conformance.options import ConformanceOptions, OptionsError, open_runner, protocol_named
from app.plugins.conformance.presentation import present, present_checks, to_plain
from app.plugins.conformance.probe import RequestLimitError
from app.plugins.conformance.runner import ConformanceReport, UnreachableError
from app.report import print_report, print_table, to_json

_VIOLATED = 1


def conform(
    url: str | None = None,
    *,
    options: ConformanceOptions = ConformanceOptions(),  # noqa: B008
    all_models: Annotated[bool, Parameter(negative="")] = False,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    listing: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: Path | None = None,
) -> None:
    """Check any inference server against a protocol.

    Exits with 0 when every tested MUST requirement holds, and with 1 when one fails. Exits with 2 when the server does
    not answer or rejects the credentials, or when the options are invalid.

    Args:
        url: URL of the server, or its host and port. For Chariot's protocols, the base URL that /infer follows; for
            protocols over gRPC, grpc://host:port, or grpcs:// for TLS.
        options: Which requests to send.
        all_models: Check every model that the server has loaded. Names of report files then contain the model's name.
        everything: Also show passed requirements, and requirements that do not apply.
        listing: List the protocol's requirements.
        json: Write the report to this file as JSON.
    """
    statuses: list[int] = []
    inapplicable_reasons: list[str] = []
    try:
        if listing:
            reject_unused("with --list, which checks no server", {"the URL": url, "--json": json})
            print_table(present_checks(protocol_named(options.protocol)), console())
            return
        if url is None:
            raise OptionsError("Expected the URL of a server, got none")
        check_output(json)
        for name in _models(url, options, all_models=all_models):
            report = _run_checks(url, replace(options, model=name))
            print_report(present(report, everything=everything), console())
            if json:
                _write(json, to_json(to_plain(report)), name if all_models else None)
            statuses.append(_status(report))
            inapplicable_reasons.append(report.inapplicable_reason)
        if all(inapplicable_reasons):
            reason = inapplicable_reasons[0]
            raise OptionsError(f"{options.protocol} was not checked: {reason}. For tensors, use --protocol v2")
    except (UnreachableError, OptionsError, RequestLimitError, ModelError, SettingsError) as error:
        stop(str(error))
    if any(statuses):
        # A failure is more important than a missing result.
        sys.exit(min(status for status in statuses if status))


def _models(url: str, options: ConformanceOptions, *, all_models: bool) -> Sequence[str | None]:
    """Return the models to check: the given one, all, or None for the only one.

    Raise UnreachableError if the server does not answer. Raise OptionsError if an option is not valid, or the server
    has several models and none is chosen. Raise RequestLimitError if the limit of requests is too low to list the
    models.
    """
    if options.model and all_models:
        raise OptionsError("Use --model or --all-models, not both")
    if options.model or "/v2/models/" in url:
        return (options.model,)
    with open_runner(url, options) as runner:
        runner.check_reachable()
        names = list_models(runner.probe)
    if all_models:
        if not names:
            reason = "the server lists no models, or rejects the credentials"
            raise OptionsError(f"--all-models: {reason}; choose one with --model, or pass --header-file")
        return names
    if len(names) > 1:
        raise OptionsError(
            f"The server has several models; choose one with --model, or --all-models: {', '.join(names)}"
        )
    return (None,)


def _status(report: ConformanceReport) -> int:
    """Return the exit status for a report, and print which checks the server rejected to authorize."""
    if report.unauthorized:
        names = ", ".join(report.unauthorized)
        sys.stderr.write(
            f"charioteer: {names}: the server rejected the credentials; pass valid ones with --header-file\n"
        )
    if not report.conforms:
        return _VIOLATED
    # Without a valid key no requirement fails, because few are tested; such a run must not succeed.
    return FAILED if report.unauthorized else 0


def _run_checks(url: str, options: ConformanceOptions) -> ConformanceReport:
    with open_runner(url, options) as runner, progress("Checking", len(runner.protocol.checks)) as bar:
        runner.check_reachable()
        return runner.report(lambda _: bar.advance())


def _write(path: Path, report: bytes, model: str | None) -> None:
    """Write a report; insert the name of the model into the file's name, if given."""
    try:
        file = path.with_stem(f"{path.stem}.{model.replace('/', '%2F')}") if model else path
        file.write_bytes(report)
    except (OSError, ValueError) as error:
        stop(f"the report cannot be written: {sentence_of(error)}")
