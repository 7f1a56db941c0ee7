"""The model that is evaluated: one in this process, or one on a server."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated

import httpx
import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from cyclopts.validators import Number

from app.clients.client import PROTOCOLS, open_client
from app.clients.credentials import TlsOptions, read_headers
from app.clients.protocol import InferenceClientError, Records, Retries
from app.core.cli.terminal import error_console, printable, reject_unused
from app.core.settings.environment import RARE
from app.core.settings.model import ModelSource
from app.core.settings.server import ModelOptions
from app.inputs import choose_model, predict_records, read_assignments
from app.plugins.evaluation.answers import MEASURED_TASKS
from app.plugins.evaluation.collection import InferenceClient
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits

_DEFAULT_TOP_K = 100
_DEFAULT_LIMITS = Limits()
_DEFAULT_SCORE_THRESHOLD = 0.001
_DEFAULT_PARAMETERS = frozenset({"action", "score_threshold", "top_k"})
"""Parameters that `parameters_for` adds. A model that lacks them does not fit the labels, which is another error."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The server that has the model, for commands that otherwise run it in this process."""

    url: str | None = None
    """Use the model of this server instead of a local one; host:port for gRPC."""

    protocol: str = "chariot-v2-kserve"
    """Protocol of the server: chariot-v2-kserve, chariot-v2, v2, v1 or v2-grpc."""

    header: Annotated[list[str] | None, RARE] = None
    """Header for authentication or routing, such as "X-Tenant: a"; left out of reports."""

    header_file: ExistingFile | None = None
    """File of header lines such as "Authorization: Bearer KEY", which keeps keys out of the process list."""

    timeout: Annotated[float, Parameter(validator=Number(gt=0, lte=86_400)), RARE] = 60
    """Seconds to wait for a response of the server."""

    tls: Annotated[TlsOptions, RARE] = field(default_factory=TlsOptions)

    def check(self) -> None:
        """Check that the options of the client have an effect.

        Raise SettingsError naming those that are given without a URL.
        """
        if self.url is None:
            given = {
                option.name: getattr(part, option.name) != option.default
                for part in (self, self.tls)
                for option in fields(part)
                if option.name != "tls"
            }
            options = {f"--{name.replace('_', '-')}": is_given for name, is_given in given.items()}
            reject_unused("without --url, which names the server", options)


class EvaluatedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and how to request predictions from it.

    `label` is for the report. `identity` is everything that the predictions of a server depend on. `source` are the
    files of a model in this process.
    """

    label: str
    open_predictor: Callable[[], AbstractContextManager[InferenceClient]]
    identity: Mapping[str, object] = {}
    source: ModelSource | None = None


def parameters_for(
    dataset: Dataset, score_threshold: float | None = None, assignments: Sequence[str] = ()
) -> Mapping[str, object]:
    """Return the parameters of every request: `read_assignments`, and defaults for the task of the dataset.

    The default score threshold of objects is low, because average precision needs nearly all objects.
    """
    parameters = read_assignments(assignments)
    if dataset.tasks[0].returns == "classes":
        return {"action": "predict_proba", **parameters}
    threshold = _DEFAULT_SCORE_THRESHOLD if score_threshold is None else score_threshold
    return {"score_threshold": threshold, "top_k": _DEFAULT_TOP_K, **parameters}


def local_model(
    options: ModelOptions, name: str | None, parameters: Mapping[str, object], limits: Limits = _DEFAULT_LIMITS
) -> EvaluatedModel:
    """Return the model that the options name, to run in this process. Raise `ModelError` if there is none."""
    source = choose_model(options, name)
    return EvaluatedModel(
        label=f"{source.name} {source.version}".strip(),
        open_predictor=lambda: nullcontext(local_predictor(source, parameters, limits)),
        source=source,
    )


def served_model(
    server: ServerOptions, url: str, name: str | None, parameters: Mapping[str, object], *, persistent: bool = False
) -> EvaluatedModel:
    """Return the model behind the URL of a server. A persistent client waits for minutes if it is busy or restarts.

    Raise CredentialsError when a header cannot be used. Raise EvaluationError when the URL, protocol and name do not
    fit together.
    """
    headers = read_headers(server.header or (), server.header_file)
    # As in `charioteer conform`, v1, v2 and v2-grpc are also called kserve-v1, kserve-v2 and kserve-v2-grpc.
    protocol = PROTOCOLS.get(server.protocol.removeprefix("kserve-"))
    if protocol is None:
        raise EvaluationError(f"--protocol: Expected one of {', '.join(PROTOCOLS)}, got {server.protocol}")
    display_url = url
    if not protocol.rpc:
        url = url if "://" in url else f"http://{url}"
        if not url.startswith(("http://", "https://")):
            raise EvaluationError(f"--url: Expected a URL that begins with http:// or https://, got {url}")
        try:
            display_url = str(httpx.URL(url).copy_with(userinfo=b""))
        except httpx.InvalidURL as error:
            raise EvaluationError(f"--url: {error}") from None
    if protocol.needs_model and not name:
        raise EvaluationError(f"--name: {protocol.name} needs the model's name")
    model, retries = name or "", Retries(persistent, _report_wait)

    @contextmanager
    def open_predictor() -> Generator[InferenceClient]:
        with open_client(
            url, protocol, model, headers=headers, timeout=server.timeout, tls=server.tls, retries=retries
        ) as client:
            yield lambda _, data: client(data, parameters)

    return EvaluatedModel(
        label=f"{name or 'the only model'} at {display_url} ({protocol.name})",
        identity={"url": display_url, "protocol": protocol.name, "model": model, "parameters": parameters},
        open_predictor=open_predictor,
    )


@cache
def _report_wait(reason: str) -> None:
    """Report, once for each reason, that a persistent client waits for a server that it cannot reach."""
    error_console().print(f"Waiting for the server, at most five minutes: {printable(reason)}")


def local_predictor(source: ModelSource, parameters: Mapping[str, object], limits: Limits) -> InferenceClient:
    """Load a model in this process, and return a function that predicts records.

    Raise EvaluationError when an evaluation cannot measure its task. Raise InferenceError when its task has no
    parameter of a name in `parameters`. Raise ModelError when it cannot be loaded.
    """
    from app.core.assembly.models import load

    servable = load(source)
    task_type = servable.description.task_type
    if task_type not in MEASURED_TASKS:
        measured = " or ".join(MEASURED_TASKS)
        raise EvaluationError(f"{source.name} is a model of {task_type}; an evaluation measures {measured}")
    servable.check_parameters(parameters.keys() - _DEFAULT_PARAMETERS)

    def predict(_: Item, data: bytes) -> Records:
        try:
            records = predict_records(servable, source.name, data, parameters, limits)
        except InferenceError as error:
            raise InferenceClientError(str(error)) from None
        return msgspec.convert(msgspec.to_builtins(records), list[dict[str, object]])

    return predict
