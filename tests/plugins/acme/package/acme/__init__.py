"""A plugin of a third party. It imports nothing of Charioteer but `charioteer.plugins`."""

from acme.settings import AcmeCheckOptions, AcmeSettings
from charioteer.plugins import Command, ModelSection, Plugin, Ref

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
    public={"acme_greeting": "acme.words"},
)
