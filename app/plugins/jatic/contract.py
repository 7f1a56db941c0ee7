"""Read the file that describes a graph of JATIC_ONNX v1, and check the graph against it.

modelmaite, checkmaite and dataeval take the paths of both files. The requirement only suggests a name, so that the file
is found by its content.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from app.core.runtimes.folder import resolve_confined
from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSource, read_bounded
from tasks.inference.request import validation_error
from tasks.inference.tensor import Datatype
from tasks.task import TaskType

LAYOUT = "jatic"
NAME, VERSION = "JATIC_ONNX", "v1"
METADATA_FILE = "model-metadata.json"
"""The name that the requirement suggests."""
CHANNELS = {"RGB": 3, "GRAYSCALE": 1}
_FILES = ("{stem}.json", "{stem}-metadata.json", "{stem}_metadata.json", METADATA_FILE, "model.json")
_MAX_BYTES = 16 * 1024 * 1024
_ANY = -1
Count = Annotated[int, msgspec.Meta(ge=1)]


class Interface(msgspec.Struct, frozen=True):
    """The name and version of the contract."""

    name: str | None = None
    version: str | None = None


class ImageInput(msgspec.Struct, frozen=True):
    """The input; -1 is the side of the image, pixels."""

    channels: str = "RGB"
    height: int = _ANY
    width: int = _ANY


class ModelOutput(msgspec.Struct, frozen=True, rename="camel"):
    """The sizes of the outputs, if they are declared."""

    n_classes: Count | None = None
    n_boxes: Annotated[int, msgspec.Meta(ge=0)] | None = None


class InputOutput(msgspec.Struct, frozen=True, rename="camel"):
    """The task, and the maximum number of images in a call; -1 for any number."""

    interface: str = ""
    batch_size: int = _ANY
    input: ImageInput = ImageInput()
    output: ModelOutput = ModelOutput()


class ContractMetadata(msgspec.Struct, frozen=True):
    """The content of the file. Unknown fields are ignored, as by all loaders."""

    interface: Interface = Interface()
    io: InputOutput = InputOutput()
    index2label: list[Any] | dict[str, Any] | None = None


class TaskOutputs(NamedTuple):
    """The task of an interface, and the names of its outputs."""

    task_type: TaskType
    outputs: tuple[str, ...]


INTERFACES: Mapping[str, TaskOutputs] = {
    "IMAGE_CLASSIFICATION": TaskOutputs(TaskType.IMAGE_CLASSIFICATION, ("scores",)),
    "IMAGE_OBJECT_DETECTION": TaskOutputs(TaskType.OBJECT_DETECTION, ("boxes", "scores")),
}
"""By ``io.interface``."""


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """A graph's metadata file, after the check. A side of -1 is the image's own, others are pixels: height, width."""

    file: Path
    metadata: ContractMetadata
    sides: tuple[int, int]

    @property
    def task(self) -> TaskOutputs:
        """Return the task and its outputs."""
        return INTERFACES[self.metadata.io.interface]


def describe(source: ModelSource, session: GraphSession) -> ExportMetadata | None:
    """Return labels, size and contract from a metadata file that the graph does not contradict; None without one."""
    declared = source.settings.layout
    if declared not in (None, LAYOUT) or session.file.suffix.lower() != ".onnx":
        return None
    found = find_metadata(source, session)
    if found is None:
        if declared is None:
            return None
        names = ", ".join(_names(session.file))
        raise ModelError(
            f'{session.file}: model-settings.json declares the layout "{LAYOUT}", but no {NAME} file is beside the '
            f"graph; expected one of {names}"
        )
    file, metadata = found
    sides = _check(file, metadata, session)
    labels = None if source.settings.labels is not None else _labels(file, metadata)
    # A declared resize has one size for all images, which is then a guess.
    size = None if source.settings.preprocessing.resize is not None and _ANY in sides else sides
    contract = Contract(file=file, metadata=metadata, sides=sides)
    return ExportMetadata(names=labels, size=size, contract=contract, files={METADATA_FILE: file})


def find_metadata(source: ModelSource, session: GraphSession) -> tuple[Path, ContractMetadata] | None:
    """Return the first file beside the graph that is the metadata of JATIC_ONNX, and its content.

    dataeval does not read the name of the interface. Without it, the graph must have the names of the contract. Raise
    ModelError if a file with that name cannot be read.
    """
    folders = dict.fromkeys((session.file.parent, source.folder))
    for path in (folder / name for name in _names(session.file) for folder in folders):
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            continue
        content = read_bounded(resolve_confined(path, source), _MAX_BYTES)
        try:
            metadata = msgspec.json.decode(content, type=ContractMetadata)
        except (msgspec.DecodeError, RecursionError) as error:
            if f'"{NAME}"'.encode() not in content:
                continue
            reason = validation_error(error) if isinstance(error, msgspec.ValidationError) else str(error)
            raise ModelError(f"{path}: {reason}") from None
        task, name = INTERFACES.get(metadata.io.interface), metadata.interface.name
        if name == NAME or (name is None and task is not None and not _graph_fault(task, session)):
            return path, metadata
    return None


def _names(graph: Path) -> Sequence[str]:
    return [name.format(stem=graph.stem) for name in _FILES]


def _check(file: Path, metadata: ContractMetadata, session: GraphSession) -> tuple[int, int]:
    """Check the metadata, and the graph against it; return the (height, width) of the input, -1 for the image's."""
    io = metadata.io
    version, channels = metadata.interface.version, io.input.channels.upper()
    if version != VERSION and metadata.interface.name is not None:
        raise ModelError(f"{file}: interface.version: Expected {VERSION}, got {version}; other versions are unknown")
    if io.interface not in INTERFACES:
        raise ModelError(f"{file}: io.interface: Expected one of {', '.join(INTERFACES)}, got {io.interface!r}")
    if channels not in CHANNELS:
        raise ModelError(f"{file}: io.input.channels: Expected one of {', '.join(CHANNELS)}, got {channels!r}")
    sides = (io.input.height, io.input.width)
    for name, value in zip(("batchSize", "input.height", "input.width"), (io.batch_size, *sides), strict=True):
        if value != _ANY and value < 1:
            raise ModelError(f"{file}: io.{name}: Expected a positive number, or -1 for any, got {value}")
    if fault := _graph_fault(INTERFACES[io.interface], session):
        raise ModelError(f"{session.file}: {fault}")
    _, count, *graph_sides = session.inputs[0].shape
    # A graph with any number of channels would be taken for one of three.
    if count != CHANNELS[channels] and (count, channels) != (_ANY, "RGB"):
        takes = "any number of channels" if count == _ANY else f"{count} channels"
        declared = f"{file.name} declares {channels}, which needs {CHANNELS[channels]}"
        raise ModelError(f"{session.file}: its input has {takes}, but {declared}")
    for name, declared, side in zip(("height", "width"), sides, graph_sides, strict=True):
        if _ANY not in (declared, side) and declared != side:
            found = f"its input has the {name} {side}"
            raise ModelError(f"{session.file}: {found}, but {file.name} declares {declared} pixels")
    height, width = (side if declared == _ANY else declared for declared, side in zip(sides, graph_sides, strict=True))
    return height, width


def _graph_fault(task: TaskOutputs, session: GraphSession) -> str:
    """Return how the inputs and outputs of a graph differ from JATIC_ONNX, "" if they do not."""
    inputs, outputs = ([spec.name for spec in specs] for specs in (session.inputs, session.outputs))
    if inputs != ["image"]:
        return f'{NAME} has one input "image", but the graph has {_quoted(inputs)}'
    (image,) = session.inputs
    if image.datatype is not Datatype.FP32:
        return f"{NAME} takes pixels of FP32 in 0..1, but the input is {image.datatype}"
    if len(image.shape) != 4:
        return f"{NAME} takes images [batch, channels, height, width], but the input is {list(image.shape)}"
    if sorted(outputs) != sorted(task.outputs):
        return (
            f"{NAME} has for {task.task_type} the outputs {_quoted(task.outputs)}, but the graph has {_quoted(outputs)}"
        )
    return ""


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f'"{name}"' for name in names) or "none"


def _labels(file: Path, metadata: ContractMetadata) -> tuple[str, ...]:
    """Return the labels of the classes 0, 1, ... in that order."""
    labels = metadata.index2label
    if not labels:
        raise ModelError(f"{file}: index2label: Expected a label for each class, as a list or by class number")
    pairs = labels.items() if isinstance(labels, dict) else enumerate(labels)
    try:
        by_number = {int(number): str(label) for number, label in pairs}
    except ValueError:
        by_number = {}
    if sorted(by_number) != list(range(len(labels))):
        raise ModelError(f"{file}: index2label: Expected the class numbers 0 to {len(labels) - 1} as keys")
    classes = metadata.io.output.n_classes
    if classes not in (None, len(labels)):
        raise ModelError(f"{file}: io.output.nClasses is {classes}, but index2label has {len(labels)} labels")
    return tuple(by_number[number] for number in range(len(labels)))
