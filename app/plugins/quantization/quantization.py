"""Quantise an ONNX model to int8, calibrated with images, and write the result as a new version of the model."""

import hashlib
import importlib
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from app import __version__
from app.core.assembly.discovery import model_at
from app.core.engine.error_text import needs_extra
from app.core.runtimes.folder import CONFIGURATION
from app.core.runtimes.onnxruntime.files.model_files import read_model_files
from app.core.runtimes.onnxruntime.loading import load, open_session
from app.core.runtimes.onnxruntime.precision import PROVENANCE_FILE, QuantizationProvenance
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_json_file
from app.core.wire.bytes_elements import BinaryElement
from app.inputs import list_images
from app.plugins.quantization.judging import MIN_IMAGES, QuantizationJudge
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tasks.vision.request import IMAGE_INPUT

_OPERATORS = ("Conv", "Gemm", "MatMul")
"""Operators that run in int8. They need nearly all of the time; int8 in a detector's head would move its boxes."""
_VERSION = re.compile(r"v?(\d+)(\.\d+)*", re.ASCII)
_MIN_OPSET = 13
"""The first opset in which DequantizeLinear takes a scale for each channel."""
_NOT_COPIED = ("name", "uri", "version", "versions")
_RECORDED = re.compile(r"[0-9a-f]{64}")
"""The file name of a recorded image: its digest."""


def next_version(source: ModelSource) -> Path:
    """Return the folder of a new version of the model: a number above all others, 2 for a model without versions."""
    root = source.root or source.folder
    numbers = [int(match[1]) for path in root.iterdir() if (match := _VERSION.fullmatch(path.name)) and path.is_dir()]
    return root / str(max([1, *numbers]) + 1)


def quantize(
    source: ModelSource,
    images: Sequence[Path],
    folder: Path,
    on_progress: Callable[[int], None] = lambda _: None,
    max_changed: float | None = None,
) -> QuantizationProvenance:
    """Quantise the graph of a model that takes an image, and write it with its settings and its provenance.

    The first half of the files calibrates, the second judges the result (`QuantizationJudge`); of fewer than 100, all
    do both. Those that are not images are skipped; `on_progress` is called with 1 after each use of a file. `folder`
    must not exist. Raise ModelError when the model cannot be quantised, too few files are images, or the extra is not
    installed; also when the result cannot be loaded and run, or more than `max_changed` of its answers differ from the
    original's. Raise OSError when the result cannot be written.
    """
    if source.settings.precision == "int8":
        raise ModelError(f"{source.folder} is quantised already; name the file of the original")
    framework, tools = _tools()
    if folder.exists():
        raise ModelError(f"{folder} exists already")
    if not folder.parent.is_dir():
        raise ModelError(f"{folder}: there is no folder {folder.parent}")
    half = len(images) // 2 if len(images) >= 2 * MIN_IMAGES else 0
    reader = _CalibrationReader(source, images[:half] or images, on_progress)
    judge = QuantizationJudge(source, images[half:], on_progress)
    graph = reader.session.file
    # A repository that is polled must not see a part of it.
    with tempfile.TemporaryDirectory(prefix=".quantize-", dir=folder.parent) as scratch:
        part, original, prepared = (Path(scratch) / name for name in ("version", "original.onnx", "prepared.onnx"))
        part.mkdir()
        # Signed weights saturate on x86 processors without VNNI.
        types = {"activation_type": tools.QuantType.QUInt8, "weight_type": tools.QuantType.QUInt8}
        options = {"op_types_to_quantize": list(_OPERATORS), "per_channel": True, **types}
        try:
            onnx = importlib.import_module("onnx")
            model = onnx.load(str(graph))
            if not any(node.op_type in _OPERATORS for node in model.graph.node):
                raise ModelError(f"{graph} cannot be quantised: it has none of {', '.join(_OPERATORS)}")
            if any(entry.version < _MIN_OPSET for entry in model.opset_import if entry.domain in ("", "ai.onnx")):
                needed = f"export it with opset {_MIN_OPSET} or later"
                raise ModelError(f"{graph} cannot be quantised, because its opset is below {_MIN_OPSET}: {needed}")
            # The tool needs one file: of a graph in memory it moves the values that Split and Slice read, and of a
            # file it does not find the weights that are in other files.
            onnx.save(model, str(original))
            tools.shape_inference.quant_pre_process(str(original), str(prepared), skip_symbolic_shape=True)
            tools.quantize_static(str(prepared), str(part / "model.onnx"), reader, **options)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001  onnx and ONNX Runtime raise many types
            raise ModelError(f"{graph} cannot be quantised: {type(error).__name__}: {error}") from None
        kept = {name: value for name, value in _read_own_settings(source).items() if name not in _NOT_COPIED}
        settings = {**({"name": source.settings.name} if source.settings.name else {}), **kept, "precision": "int8"}
        files = read_model_files(source, reader.session)
        if files.label_file and files.labels:
            settings["labels"] = files.labels[0]
        beside = [(name, folder / name) for name in CONFIGURATION for folder in (source.folder, graph.parent)]
        for name, file in (*beside, *files.metadata.files.items()):
            if file.is_file():
                shutil.copy(file, part / name)
        _write_json(part / SETTINGS_FILE, settings)
        provenance = QuantizationProvenance(
            source=graph.name,
            source_version=source.version,
            source_sha256=hashlib.sha256(graph.read_bytes()).hexdigest(),
            images=len(reader.digests),
            images_sha256=hashlib.sha256("\n".join(sorted(reader.digests)).encode()).hexdigest(),
            tool=f"onnxruntime {framework.__version__}",
            written_by=f"charioteer {__version__}",
            verdict=judge.judge(model_at(part)[0], max_changed),
        )
        _write_json(part / PROVENANCE_FILE, provenance)
        part.rename(folder)
    return provenance


def _write_json(file: Path, content: object) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


class _CalibrationReader:
    """Yields the graph's inputs for each image, as serving computes them: a `CalibrationDataReader`."""

    def __init__(self, source: ModelSource, images: Sequence[Path], on_progress: Callable[[int], None]) -> None:
        self.session = _RecordingSession(open_session(source))
        self.digests: set[str] = set()
        self._servable = load(source, lambda _: self.session)
        if tuple(self._servable.inputs) != (IMAGE_INPUT,):
            raise ModelError(f"{source.folder}: only a model that takes one image can be quantised")
        self._feeds = self._read(source.name, images, on_progress)

    def get_next(self) -> Mapping[str, NDArray[Any]] | None:
        return next(self._feeds, None)

    def _read(
        self, name: str, images: Sequence[Path], on_progress: Callable[[int], None]
    ) -> Iterator[Mapping[str, NDArray[Any]]]:
        for file in images:
            on_progress(1)
            data = file.read_bytes()
            tensor = BytesTensor(name=IMAGE_INPUT.name, shape=(1,), elements=[BinaryElement(data)])
            try:
                request = InferenceRequest(id="quantize", model_name=name, inputs=(tensor,))
                self._servable.predict(request, Limits())
            except InferenceError:
                continue
            self.digests.add(hashlib.sha256(data).hexdigest())
            yield self.session.feeds
        if not self.digests:
            raise ModelError("No file of the calibration data is an image that the model accepts")


class _RecordingSession:
    """A `GraphSession` that keeps the inputs of its last call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.file, self.inputs, self.outputs = session.file, session.inputs, session.outputs
        self.metadata, self.facts, self.copies = session.metadata, session.facts, session.copies
        self.feeds: Mapping[str, NDArray[Any]] = {}

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        self.feeds = feeds
        return self._session.run(feeds, names)

    def check_memory(self, feeds: Mapping[str, NDArray[Any]]) -> None:
        self._session.check_memory(feeds)


def _read_own_settings(source: ModelSource) -> Mapping[str, object]:
    """Return the content of the settings file of a model: its version's own, else the one for all versions."""
    for folder in filter(None, (source.folder, source.root)):
        if (folder / SETTINGS_FILE).is_file():
            return read_json_file(folder / SETTINGS_FILE, dict[str, object])
    return {}


def _tools() -> tuple[Any, Any]:
    with needs_extra("Quantisation", "quantize", ModelError):
        importlib.import_module("onnx")
    tools = importlib.import_module("onnxruntime.quantization")
    importlib.import_module("onnxruntime.quantization.shape_inference")
    return importlib.import_module("onnxruntime"), tools


def choose_images(folder: Path, limit: int) -> Sequence[Path]:
    """Return at most `limit` images below `folder`, chosen at random, but the same in every run.

    The folder of ``--record-images`` is accepted too. Raise ModelError for a folder without images.
    """
    files = list_images(folder) or sorted(path for path in folder.rglob("*") if _RECORDED.fullmatch(path.name))
    if not files:
        raise ModelError(f"There are no images in {folder}")
    return random.Random(0).sample(files, min(limit, len(files)))  # noqa: S311  not for security
