"""A plugin of a third party. It imports nothing of Charioteer but `charioteer.plugins`."""

from pathlib import Path

from acme.settings import AcmeCheckOptions, AcmeModelOptions, AcmeSettings
from charioteer.plugins import Command, ModelSection, Page, Plugin, Ref, View

plugin = Plugin(
    api=1,
    name="acme",
    summary="Greetings of the company Acme.",
    settings=(AcmeSettings,),
    model_options=(AcmeModelOptions,),
    model_settings=(ModelSection(type=Ref("acme.settings:AcmeModelSettings"), name="acme"),),
    parameters=(ModelSection(type=Ref("acme.parameters:AcmeParameters")),),
    commands=(Command(name="acme-greet", run="acme.command:greet", help="Print a greeting."),),
    command_options={"check": AcmeCheckOptions},
    task_types=Ref("acme.counting:TASKS"),
    layouts=Ref("acme.counting:LAYOUTS"),
    protocols=Ref("acme.protocol:protocols"),
    runtimes=Ref("acme.runtime:RUNTIMES"),
    loaders=Ref("acme.files:LOADERS"),
    formats=Ref("acme.files:FORMATS"),
    endpoints={"kserve-v1": Ref("acme.protocol:endpoints")},
    methods={"kserve-v2-grpc": Ref("acme.protocol:METHODS")},
    extends={"kserve-v1.models": Ref("acme.lists:LISTS")},
    start=Ref("acme.start:start"),
    page=Page(
        folder=Path(__file__).parent / "static",
        views=(View(id="acme", title="Acme", order=90),),
        parts={"try": "acme_try.js"},
    ),
    public={"acme_greeting": "acme.words"},
)
