"""A plugin of a third party. It imports nothing of Charioteer but `charioteer.plugins`."""

from pathlib import Path

from acme.settings import AcmeCheckOptions, AcmeSettings
from charioteer.plugins import Command, ModelSection, Page, Plugin, Ref, View

plugin = Plugin(
    api=1,
    name="acme",
    summary="Greetings of the company Acme.",
    settings=(AcmeSettings,),
    parameters=(ModelSection(type=Ref("acme.parameters:AcmeParameters")),),
    commands=(Command(name="acme-greet", run="acme.command:greet", help="Print a greeting."),),
    command_options={"check": AcmeCheckOptions},
    runtimes=Ref("acme.runtime:RUNTIMES"),
    start=Ref("acme.start:start"),
    page=Page(
        folder=Path(__file__).parent / "static",
        views=(View(id="acme", title="Acme", order=90),),
        parts={"try": "acme_try.js"},
    ),
    public={"acme_greeting": "acme.words"},
)
