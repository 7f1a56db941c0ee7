"""Choose the layout of a graph among those of core and plugins."""

from app.core.plugins import registry
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Match, format_outputs
from metadata.model import Fact, Origin


def choose_layout(view: GraphView, facts: list[Fact]) -> Match:
    """Choose the layout of a graph, and record it with the model's task.

    Raise ModelError if no layout or several layouts match. The message explains what to declare.
    """
    (task, task_origin), declared_layout = view.model_files.declared_task(), view.declared_layout
    layouts = [layout for layout in registry().layouts if task is None or task in layout.task_types]
    layout_names = [name for layout in layouts for name in layout.names]
    if declared_layout is not None and declared_layout not in layout_names:
        raise view.model_files.error(
            f"model-settings.json declares the layout {declared_layout!r}; "
            f"known layouts{f' of {task}' if task else ''} are {', '.join(layout_names)}"
        )
    matches = [
        match
        for layout in registry().layouts
        if (match := layout.recognise(view)) is not None
        and task in (None, match.task_type)
        and declared_layout in (None, match.layout)
    ]
    match [match for match in matches if match.by_names] or matches:
        case [best]:
            facts.append(Fact("task type", str(best.task_type), best.task_origin if task is None else task_origin))
            origin = best.origin if declared_layout is None else Origin.DECLARED
            facts.append(Fact("layout", f"{best.layout}, outputs {format_outputs(best.outputs)}", origin))
            facts += best.facts
            parameters = view.model_files.settings.parameters
            facts += [
                Fact(name, str(parameters.get(name, value)), Origin.DECLARED if name in parameters else best.origin)
                for name, value in best.parameters.items()
            ]
            if best.keypoints is not None:
                points, numbers = best.keypoints
                origin = Origin.MODEL_FILE if view.model_files.metadata.keypoints else best.origin
                facts.append(Fact("keypoints", f"{points} of {numbers} numbers for each box", origin))
            return best
        case []:
            unknown = f"its outputs {format_outputs(view.outputs)} are of no known layout"
            explanations = (explain(view, task, layouts) for explain in registry().extensions("onnx.refusals"))
            raise view.model_files.error(next(explanations, unknown))
        case several:
            choices = " or ".join(f'{{"layout": "{match.layout}"}} ({match.task_type})' for match in several)
            raise view.model_files.error(
                f"its outputs {format_outputs(view.outputs)} can be read in several ways; declare one of them in "
                f"model-settings.json: {choices}"
            )
