"""An item of an extension point of the plugin `labeling`."""

from collections.abc import Awaitable, Callable, Mapping

from charioteer.plugins import Engine

AnnotationWriter = Callable[[Mapping[str, object], str, bool], Awaitable[object]]


async def keep(task: Mapping[str, object], client: str, is_complete: bool) -> object:
    """Keep a finished annotation of Label Studio, and return what is answered."""
    return {"kept": task["id"], "complete": is_complete}


def annotations(engine: Engine) -> AnnotationWriter | None:
    """Return the function that gets the annotations which a server receives."""
    return keep


ANNOTATIONS = (annotations,)
