"""What the plugin adds to a server: a metric of finished requests, output parameters, a route and a view."""

from collections.abc import Sequence

from litestar import get
from prometheus_client import Counter

from acme.parameters import Greetings
from acme.settings import AcmeSettings
from charioteer.plugins import Host, ListedModels, Parts, RequestContext, WireModel, requires


class Requests:
    """Count finished requests."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def observe(self, context: RequestContext, /) -> None:
        self._counter.labels(context.model_name).inc()


def start(host: Host) -> Parts:
    """Return the observer, the annotator and the route, and provide a list of models."""
    greeting = host.settings.of(AcmeSettings).acme_greeting
    counter = Counter("acme_requests", "Finished requests.", ["model"], registry=host.metrics)

    def listed_models() -> Sequence[WireModel]:
        return [WireModel(id=f"acme/{name}") for name in host.engine.registry.names]

    host.provide(ListedModels, listed_models)

    @get("/acme", sync_to_thread=False, opt=requires("open"))
    def greet() -> dict[str, object]:
        models = [model.id for listed in host.find(ListedModels) for model in listed()]
        return {"greeting": greeting, "models": models}

    return Parts(
        observers=(Requests(counter),),
        annotators=(Greetings(greeting),),
        handlers=(greet,),
        views={"acme": lambda: {"greeting": greeting}},
    )
