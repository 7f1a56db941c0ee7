"""Who answers in an evaluation: a model in this process, or a server."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import msgspec

from app.cli.choice import chosen
from app.conformance.trust import Trust
from app.evaluation.asking import HTTP_PROTOCOLS, HttpAsker
from app.evaluation.collecting import Asker, AskingError
from app.evaluation.dataset import Dataset, Item
from app.evaluation.extras import EvaluationError
from app.evaluation.journal import Records
from app.settings.model import ModelSource
from app.settings.server import ModelOptions
from tasks.exchange.error import InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.task import TaskType

__all__ = ("PROTOCOLS", "Source", "here", "parameters_for", "server")

PROTOCOLS = (*HTTP_PROTOCOLS, "v2-grpc", "grps-grpc")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers.

    Attributes:
        words: for people.
        told: what an answer depends on, for the journal.
        asker: opens what asks.
        notes: what has to be said in the report.
    """

    words: str
    told: Mapping[str, object]
    asker: Callable[[], AbstractContextManager[Asker]]
    notes: Sequence[str] = ()


def parameters_for(dataset: Dataset, score_threshold: float, top_k: int, given: Sequence[str]) -> Mapping[str, object]:
    """The parameters of every request: enough findings for a whole curve, and what the user says.

    Args:
        dataset: whose tasks decide.
        score_threshold: of objects.
        top_k: so many objects.
        given: ``name=value``, the value JSON or else a text.

    Raises:
        EvaluationError: when one of `given` is something else.
    """
    read: dict[str, object] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise EvaluationError(f'--parameter: Expected "name=value", got {each}')
        try:
            read[name.strip()] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            read[name.strip()] = value
    match dataset.tasks[0]:
        case TaskType.IMAGE_TEXT_TO_TEXT:
            return read
        case TaskType.IMAGE_CLASSIFICATION:
            return {"action": "predict_proba", **read}
        case _:
            return {"score_threshold": score_threshold, "top_k": top_k, **read}


def here(options: ModelOptions, name: str | None, parameters: Mapping[str, object]) -> Source:
    """A model that answers in this process.

    Raises:
        ModelError: when there is no such model.
    """
    source = chosen(options, name)
    told: dict[str, object] = {"model": source.name, "version": source.version, "parameters": parameters}
    return Source(
        words=f"{source.name} {source.version}".strip(),
        told={**told, "files": _files(source)},
        asker=lambda: _here(source, parameters),
    )


def server(
    url: str,
    protocol: str,
    name: str | None,
    parameters: Mapping[str, object],
    headers: Mapping[str, str],
    timeout: float,
    trust: Trust,
) -> Source:
    """A model behind a URL.

    Raises:
        EvaluationError: when URL, protocol and name do not go together.
    """
    if protocol not in PROTOCOLS:
        raise EvaluationError(f"--protocol: Expected one of {', '.join(PROTOCOLS)}, got {protocol}")
    over_http = protocol in HTTP_PROTOCOLS
    if over_http and not url.startswith(("http://", "https://")):
        raise EvaluationError(f"--url: Expected a URL that begins with http:// or https://, got {url}")
    shown = _without_secrets(url) if over_http else url
    needs_name = HTTP_PROTOCOLS[protocol].needs_model if over_http else protocol == "v2-grpc"
    if needs_name and not name:
        raise EvaluationError(f"--name: {protocol} needs the model's name")
    notes: list[str] = []
    if over_http and not HTTP_PROTOCOLS[protocol].takes_parameters:
        notes.append(
            f"{protocol} has no request parameters: findings below the model's own score threshold are missing, and "
            "average precision and recall are not those of other protocols."
        )

    def asking() -> AbstractContextManager[Asker]:
        return _over_http(url, protocol, name or "", parameters, headers, timeout, trust)

    def calling() -> AbstractContextManager[Asker]:
        return _over_grpc(url, protocol, name or "", parameters, headers, timeout, trust)

    return Source(
        words=f"{name or 'the only model'} at {shown} ({protocol})",
        told={"url": shown, "protocol": protocol, "model": name or "", "parameters": parameters},
        asker=asking if over_http else calling,
        notes=notes,
    )


@contextmanager
def _here(source: ModelSource, parameters: Mapping[str, object]) -> Generator[Asker]:
    from app.assembly.models import load
    from app.protocols.bytes_elements import BinaryElement

    servable = load(source)

    def ask(item: Item, data: bytes) -> Records:
        own = {**parameters, **({"prompts": [item.question]} if item.question else {})}
        tensor = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(data)], parameters=own)
        request = InferenceRequest(id=item.id, model_name=source.name, inputs=(tensor,))
        try:
            outputs = servable.answer(request, Limits()).outputs
        except InferenceError as error:
            raise AskingError(str(error)) from None
        records = outputs[0].predictions[0].records()
        return msgspec.convert(msgspec.to_builtins(records), list[dict[str, object]])

    yield ask


@contextmanager
def _over_http(
    url: str,
    protocol: str,
    name: str,
    parameters: Mapping[str, object],
    headers: Mapping[str, str],
    timeout: float,
    trust: Trust,
) -> Generator[Asker]:
    with httpx.Client(timeout=timeout, headers=dict(headers), trust_env=False, verify=trust.context()) as client:
        yield HttpAsker(client, url, protocol, name, parameters)


@contextmanager
def _over_grpc(
    url: str,
    protocol: str,
    name: str,
    parameters: Mapping[str, object],
    headers: Mapping[str, str],
    timeout: float,
    trust: Trust,
) -> Generator[Asker]:
    from app.cli.asking_grpc import GrpcAsker

    secured = trust.credentials() if url.startswith("grpcs://") else None
    asker = GrpcAsker(url.partition("://")[2] or url, protocol, name, parameters, timeout, headers, secured)
    try:
        yield asker
    finally:
        asker.close()


def _without_secrets(url: str) -> str:
    try:
        return str(httpx.URL(url).copy_with(userinfo=b""))
    except httpx.InvalidURL as error:
        raise EvaluationError(f"--url: {error}") from None


def _files(source: ModelSource) -> Sequence[str]:
    """The model's files, their sizes and when they were written: another model has others."""
    paths = [source.file] if source.file else sorted(each for each in source.folder.rglob("*") if each.is_file())
    return [_file(path, source.folder) for path in paths if "__pycache__" not in path.parts]


def _file(path: Path, folder: Path) -> str:
    found = path.stat()
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{name} {found.st_size} {found.st_mtime_ns}"
