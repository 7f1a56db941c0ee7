"""Serve networks that return one vector for each image as TENSOR, with the preprocessing of images.

``embedding``: [b, n] or [b, n, 1, 1]. It is known by its name, such as ``image_embeds`` and ``pooler_output`` of
transformers' exports, or by the config.json of timm for a network without classes. Hidden states beside it are left
out. Other vectors may be scores of classes, so that only the settings can declare them.
"""

from collections.abc import Sequence

from app.core.runtimes.onnxruntime.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.layout import FEATURES, GraphOutput, GraphView, Layout, Match
from metadata.model import Fact, Origin
from tasks.task import TaskType

_NAME = "embedding"
_SIDE = 224


def _recognise(view: GraphView) -> Match | None:
    is_config = view.model_files.settings.task_type is None and view.declared_task is TaskType.TENSOR
    if view.declared_layout != _NAME and view.declared_task is not None and not is_config:
        return None
    vectors = [output for output in view.outputs if _is_vector(output, view)]
    named = [
        output for output in vectors if FEATURES.search(output.name.lower()) and output.shape[1] != (view.classes or 0)
    ]
    if view.declared_layout == _NAME or is_config:
        vectors = named or (vectors if len(vectors) == 1 else [])
    elif len(named) < len(vectors) or not _are_states([output for output in view.outputs if output not in vectors]):
        return None
    if not vectors:
        return None
    output = min(vectors, key=lambda output: "embed" not in output.name.lower())
    origin = view.model_files.folder.origin if is_config else Origin.MODEL_FILE
    return Match(
        layout=_NAME,
        task_type=TaskType.TENSOR,
        outputs=(output,),
        by_names=True,
        origin=origin,
        task_origin=origin,
        preprocessing=PartialPreprocessing(
            origin=Origin.GUESSED, size=(_SIDE, _SIDE), resize="crop", mean=IMAGENET_MEAN, std=IMAGENET_STD
        ),
        facts=(Fact("takes", f"images, and returns {output.shape[1]} numbers for each, also as embeddings", origin),),
    )


def _is_vector(output: GraphOutput, view: GraphView) -> bool:
    shape = output.shape
    is_row = len(shape) in (2, 4) and shape[0] == max(view.inputs.batch, 1) and shape[1] > 1
    return output.is_float and is_row and all(side == 1 for side in shape[2:])


def _are_states(outputs: Sequence[GraphOutput]) -> bool:
    """Return whether outputs are the hidden states or attentions of a transformer, or maps of features."""
    names = [output.name.lower() for output in outputs]
    return all("hidden" in name or "attention" in name or FEATURES.search(name) for name in names)


LAYOUTS = (Layout((_NAME,), (TaskType.TENSOR,), "one vector [b, n] of floats", _recognise),)
