"""How pixels become the input of a model, worked out from its files."""

from collections.abc import Sequence

import msgspec

from app.engine.description import Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.runtimes.onnxruntime.neighbours import Preprocessor, Size
from app.runtimes.onnxruntime.placement import Resize
from tasks.exchange.tensor import Datatype, TensorSpec
from tasks.task import TaskType

__all__ = ("INPUT_DATATYPES", "Preprocessing", "decide_preprocessing", "decide_size")

INPUT_DATATYPES = (Datatype.FP32, Datatype.FP16, Datatype.UINT8)

Triple = tuple[float, float, float]

_BYTE = 1 / 255
_ZEROS: Triple = (0.0, 0.0, 0.0)
_ONES: Triple = (1.0, 1.0, 1.0)
_IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
_IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
_LETTERBOX_FILL = 114
"""The grey of Ultralytics' LetterBox."""
_UNCUT_FROM = 384
"""From this size on, processors with a crop_pct stretch instead of cropping (transformers, ConvNextImageProcessor)."""


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """``input = (pixel * scale - mean) / std`` of the resized picture.

    Attributes:
        height: of the input, pixels.
        width: of the input, pixels.
        resize: how a picture gets to that size (`app.runtimes.onnxruntime.placement.fit`).
        shorter_side: what `crop` and `stretch` resize the shorter side to before they cut out the centre.
        fill: the grey, 0..255, around a picture that does not fill the input.
        scale: of pixels 0..255.
        mean: for R, G, B.
        std: for R, G, B.
        bgr: whether the input's first channel is blue.
    """

    height: int
    width: int
    resize: Resize
    shorter_side: int
    fill: int = _LETTERBOX_FILL
    scale: float = _BYTE
    mean: Triple = _ZEROS
    std: Triple = _ONES
    bgr: bool = False


def decide_size(spec: TensorSpec, evidence: Evidence, facts: Facts, task_type: TaskType | None) -> tuple[int, int]:
    """The (height, width) that the graph is given, pixels.

    Args:
        spec: the image input, [batch, 3, height, width].
        evidence: the model's files.
        facts: where the decision is recorded.
        task_type: what the model does, if that is known already; only a guess depends on it.

    Raises:
        ModelError: when the settings declare another size than the graph has, or a file beside it one that is none.
    """
    fixed, declared = spec.shape[2:], evidence.settings.preprocessing.size
    if declared is not None and any(side not in (-1, own) for side, own in zip(fixed, declared, strict=True)):
        raise evidence.error(
            f"its input is {_sides(fixed)} pixels, but model-settings.json declares {_sides(declared)}"
        )
    preprocessor, config = evidence.neighbours.preprocessor, evidence.neighbours.config
    guessed = 224 if task_type is TaskType.IMAGE_CLASSIFICATION else 640
    height, width = facts.choose(
        "input size",
        (declared, Origin.DECLARED),
        (_pair(fixed) if -1 not in fixed else None, Origin.MODEL_FILE),
        (evidence.metadata.size, Origin.MODEL_FILE),
        (_processor_size(preprocessor), Origin.PREPROCESSOR),
        (config.size if config else None, Origin.CONFIG),
        last=((guessed, guessed), Origin.GUESSED),
        shown=_sides,
    )
    size = height if fixed[0] == -1 else fixed[0], width if fixed[1] == -1 else fixed[1]
    if min(size) < 1:
        raise evidence.error(f"its input cannot be {_sides(size)} pixels")
    return size


def decide_preprocessing(
    spec: TensorSpec, size: tuple[int, int], task_type: TaskType, evidence: Evidence, facts: Facts
) -> Preprocessing:
    """Everything about the input but its size.

    Raises:
        ModelError: for settings that contradict the graph.
    """
    declared, processor = evidence.settings.preprocessing, evidence.neighbours.preprocessor
    conventional = evidence.conventional_task is not None
    usual: Resize = "crop" if task_type is TaskType.IMAGE_CLASSIFICATION else "letterbox"
    processed = _processor_resize(processor) if processor else None
    resize: Resize = facts.choose(
        "resize",
        (declared.resize, Origin.DECLARED),
        (usual if conventional else None, Origin.MODEL_FILE),
        (processed, Origin.PREPROCESSOR),
        last=(usual, Origin.GUESSED),
    )
    shorter_side = min(size)
    if resize == processed and processor is not None and not conventional:
        shorter_side = max(shorter_side, _processor_shorter_side(processor) or 0)
        if shorter_side != min(size):
            facts.note("crop", f"shorter side to {shorter_side}, then the centre {_sides(size)}", Origin.PREPROCESSOR)
    if resize == "letterbox" and declared.fill is not None:
        facts.note("fill", str(declared.fill), Origin.DECLARED)
    scale, mean, std = _decide_normalisation(spec, task_type, evidence, facts)
    order = facts.choose(
        "channel order",
        (declared.channel_order, Origin.DECLARED),
        ("RGB" if conventional else None, Origin.MODEL_FILE),
        (None if processor is None else "BGR" if processor.do_flip_channel_order else "RGB", Origin.PREPROCESSOR),
        last=("RGB", Origin.GUESSED),
    )
    return Preprocessing(
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        fill=_LETTERBOX_FILL if declared.fill is None else declared.fill,
        scale=scale,
        mean=mean,
        std=std,
        bgr=order == "BGR",
    )


def _decide_normalisation(
    spec: TensorSpec, task_type: TaskType, evidence: Evidence, facts: Facts
) -> tuple[float, Triple, Triple]:
    declared, processor = evidence.settings.preprocessing, evidence.neighbours.preprocessor
    any_declared = any(each is not None for each in (declared.scale, declared.mean, declared.std))
    if spec.datatype is Datatype.UINT8:
        if any_declared:
            raise evidence.error("its input is uint8 pixels, so model-settings.json cannot declare scale, mean or std")
        facts.note("normalisation", "none, the input is uint8", Origin.MODEL_FILE)
        return 1.0, _ZEROS, _ONES
    if declared.std is not None and 0 in declared.std:
        raise evidence.error("model-settings.json declares a std of 0, which pixels cannot be divided by")
    conventional = evidence.conventional_task is not None
    # A mean or deviation over 1 is one of pixels 0..255, which are not scaled before it is taken away.
    unscaled = max(*(declared.mean or _ZEROS), *(declared.std or _ZEROS)) > 1
    imagenet = task_type is TaskType.IMAGE_CLASSIFICATION and not any_declared
    normalised = processor is not None and processor.do_normalize is not False
    plain = processor is not None and processor.do_normalize is False
    scale = facts.choose(
        "scale",
        (declared.scale, Origin.DECLARED),
        (_BYTE if conventional and not unscaled else None, Origin.MODEL_FILE),
        (_processor_scale(processor) if processor else None, Origin.PREPROCESSOR),
        last=(1.0 if unscaled else _BYTE, Origin.GUESSED),
        shown=_number,
    )
    mean = facts.choose(
        "mean",
        (declared.mean, Origin.DECLARED),
        (_ZEROS if conventional else None, Origin.MODEL_FILE),
        (_ZEROS if plain else processor.image_mean if processor and normalised else None, Origin.PREPROCESSOR),
        last=(_IMAGENET_MEAN if imagenet else _ZEROS, Origin.GUESSED),
        shown=_numbers,
    )
    std = facts.choose(
        "std",
        (declared.std, Origin.DECLARED),
        (_ONES if conventional else None, Origin.MODEL_FILE),
        (_ONES if plain else processor.image_std if processor and normalised else None, Origin.PREPROCESSOR),
        last=(_IMAGENET_STD if imagenet else _ONES, Origin.GUESSED),
        shown=_numbers,
    )
    if 0 in std:
        raise evidence.error("preprocessor_config.json declares an image_std of 0, which pixels cannot be divided by")
    return scale, mean, std


def _processor_scale(processor: Preprocessor) -> float:
    if processor.do_rescale is False:
        return 1.0
    return _BYTE if processor.rescale_factor is None else processor.rescale_factor


def _processor_size(processor: Preprocessor | None) -> tuple[int, int] | None:
    if processor is None:
        return None
    chosen = processor.crop_size if processor.do_center_crop and processor.crop_size is not None else processor.size
    if isinstance(chosen, Size):
        return chosen.sides or _square(chosen.shortest_edge)
    return _square(chosen)


def _processor_resize(processor: Preprocessor) -> Resize:
    size = processor.size
    edge = size.shortest_edge if isinstance(size, Size) else None
    if edge is not None and not processor.do_center_crop and processor.crop_pct is not None and edge >= _UNCUT_FROM:
        return "stretch"
    return "crop" if edge is not None else "stretch"


def _processor_shorter_side(processor: Preprocessor) -> int | None:
    size = processor.size
    if not isinstance(size, Size):
        return size
    if size.sides is not None:
        return min(size.sides)
    if size.shortest_edge is None or processor.crop_pct is None or size.shortest_edge >= _UNCUT_FROM:
        return size.shortest_edge
    return int(size.shortest_edge / processor.crop_pct)


def _pair(sides: Sequence[int]) -> tuple[int, int]:
    height, width = sides
    return height, width


def _square(side: int | None) -> tuple[int, int] | None:
    return None if side is None else (side, side)


def _sides(sides: Sequence[int]) -> str:
    return "x".join("any" if side == -1 else str(side) for side in sides)


def _number(value: float) -> str:
    return "1/255" if abs(value - _BYTE) < 1e-6 else f"{value:g}"


def _numbers(values: Triple) -> str:
    return ", ".join(f"{value:g}" for value in values)
