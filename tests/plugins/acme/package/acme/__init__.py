"""A plugin of a third party. It imports nothing of Charioteer but `charioteer.plugins`."""

from pathlib import Path

from acme.settings import AcmeModelOptions, AcmeSettings
from charioteer.plugins import Command, Page, Plugin, Ref, View

plugin = Plugin(
    api=2,
    name="acme",
    summary="Greetings of the company Acme.",
    settings=(AcmeSettings,),
    model_options=(AcmeModelOptions,),
    model_settings={"acme": Ref("acme.settings:AcmeModelSettings")},
    parameters=(Ref("acme.parameters:AcmeParameters"),),
    commands=(Command(name="acme-greet", run=Ref("acme.command:greet"), help="Print a greeting."),),
    task_types=Ref("acme.counting:TASKS"),
    layouts=Ref("acme.layouts:LAYOUTS"),
    protocols=Ref("acme.protocol:protocols"),
    runtimes=Ref("acme.runtime:RUNTIMES"),
    loaders=Ref("acme.files:LOADERS"),
    formats=Ref("acme.files:FORMATS"),
    endpoints={"kserve-v1": Ref("acme.additions:endpoints")},
    methods={"kserve-v2-grpc": Ref("acme.additions:METHODS")},
    start=Ref("acme.start:start"),
    page=Page(
        folder=Path(__file__).parent / "static",
        views=(View(id="acme", title="Acme", order=90),),
        parts={"try": "acme_try.js"},
    ),
    public={"acme_greeting": Ref("acme.words:acme_greeting")},
)
