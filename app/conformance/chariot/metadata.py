"""What chariot-v2-kserve asks of custom metadata: it goes back as it came."""

from collections.abc import Sequence

from app.conformance.chariot.envelope import LOOKING, image_input, infer, output_parameters, outputs, shown
from app.conformance.clause import Clause, FaultError, Level, Need
from app.conformance.pictures import OWN_PICTURES
from app.conformance.probe import Probe
from app.conformance.quoting import brief

__all__ = ("CLAUSES",)

_PAGE = 'Chariot, "Inference Protocols", Custom Metadata'
_STANDARD = '{"standard_metadata": {}, "extended_metadata": [{"key": "a", "type": "int", "value": "1"}]}'
_FILLED = '{"standard_metadata": {"latitude": 51.5, "longitude": -0.12}, "extended_metadata": []}'
_LIST = '[{"key": "camera", "type": "str", "value": "7"}, {"key": "speed", "type": "float", "value": "1.50"}]'
_SPACED = '{ "b" : 1.0,\n\t"a" : 1e2, "b" : "\\u00e9" }'
_UNICODE = '{"place": "Zürich 東京 🛰 \u2028", "quote": "\\"\\\\"}'
_NOT_JSON = "not JSON: {[ 'x' NaN"


def _goes_back(probe: Probe, text: str) -> None:
    got = output_parameters(outputs(shown(probe, {"metadata": text}))[0]).get("metadata")
    if got != text:
        raise FaultError(f"Expected outputs[0].parameters.metadata to be {brief(text)}, got {brief(got)}")


def _standard(probe: Probe) -> None:
    _goes_back(probe, _STANDARD)


def _filled(probe: Probe) -> None:
    _goes_back(probe, _FILLED)


def _list(probe: Probe) -> None:
    _goes_back(probe, _LIST)


def _spaced(probe: Probe) -> None:
    _goes_back(probe, _SPACED)


def _unicode(probe: Probe) -> None:
    _goes_back(probe, _UNICODE)


def _not_json(probe: Probe) -> None:
    for text in (_NOT_JSON, ""):
        _goes_back(probe, text)


def _long(probe: Probe) -> None:
    _goes_back(probe, '{"extended_metadata": [{"key": "k", "type": "str", "value": "' + 20_000 * "x" + '"}]}')


def _matching(probe: Probe) -> None:
    texts: Sequence[str] = (_STANDARD, _LIST, _NOT_JSON)
    needed = LOOKING.needed(probe)
    asked = [
        image_input(OWN_PICTURES[0], {**needed, "metadata": text}, name=f"image-{index}")
        for index, text in enumerate(texts)
    ]
    found = {
        str(output.get("name")): output_parameters(output).get("metadata") for output in outputs(infer(probe, asked))
    }
    for index, text in enumerate(texts):
        if (got := found.get(f"image-{index}")) != text:
            raise FaultError(f"Expected the metadata of image-{index}, {brief(text)}, got {brief(got)}")


def _not_invented(probe: Probe) -> None:
    got = output_parameters(outputs(shown(probe))[0])
    if "metadata" in got:
        raise FaultError(f"Expected no metadata, got {brief(got['metadata'])}")


_MUST = Level.MUST
_STORED = (Need.STORAGE,)

CLAUSES = (
    Clause(id="CV2K-030", level=_MUST, source=_PAGE, check=_standard, needed_for=_STORED, requires=("CV2K-009",),
           sentence="The metadata of an input comes back in the parameters of its output."),
    Clause(id="CV2K-031", level=_MUST, source=_PAGE, check=_filled, needed_for=_STORED, requires=("CV2K-030",),
           sentence="The same where Chariot has filled in standard_metadata."),
    Clause(id="CV2K-032", level=_MUST, source='Chariot, "Inference Store"', check=_list, needed_for=_STORED,
           requires=("CV2K-030",), sentence="The same for the bare list of entries."),
    Clause(id="CV2K-033", level=_MUST, source=f"{_PAGE}: copied through", check=_spaced, needed_for=_STORED,
           requires=("CV2K-030",),
           sentence="It is not read and written again: spaces, numbers and repeated keys stay."),
    Clause(id="CV2K-034", level=_MUST, source=f"{_PAGE}: copied through", check=_unicode, needed_for=_STORED,
           requires=("CV2K-030",), sentence="Its text may be of any script."),
    Clause(id="CV2K-035", level=_MUST, source=f"{_PAGE}: copied through", check=_not_json, needed_for=_STORED,
           requires=("CV2K-030",), sentence="Text that is not JSON comes back too, and fails nothing."),
    Clause(id="CV2K-036", level=_MUST, source=f"{_PAGE}: the matching output", check=_matching, needed_for=_STORED,
           requires=("CV2K-030", "CV2K-010", "CV2K-011", "CV2K-035"),
           sentence="Of several inputs, each output has the metadata of its own."),
    Clause(id="CV2K-037", level=Level.SHOULD, source=_PAGE, check=_not_invented, needed_for=_STORED,
           requires=("CV2K-009",), sentence="Where an input has none, its output has none."),
    Clause(id="CV2K-038", level=_MUST, source=_PAGE, check=_long, needed_for=_STORED, requires=("CV2K-030",),
           sentence="Twenty thousand characters come back whole."),
)  # fmt: skip
