"""Check that an engine of chariot-v2-kserve returns custom metadata unchanged."""

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


def _expect_returned(probe: Probe, text: str) -> None:
    got = output_parameters(outputs(shown(probe, {"metadata": text}))[0]).get("metadata")
    if got != text:
        raise FaultError(f"Expected outputs[0].parameters.metadata to be {brief(text)}, got {brief(got)}")


def _standard(probe: Probe) -> None:
    _expect_returned(probe, _STANDARD)


def _filled(probe: Probe) -> None:
    _expect_returned(probe, _FILLED)


def _list(probe: Probe) -> None:
    _expect_returned(probe, _LIST)


def _spaced(probe: Probe) -> None:
    _expect_returned(probe, _SPACED)


def _unicode(probe: Probe) -> None:
    _expect_returned(probe, _UNICODE)


def _not_json(probe: Probe) -> None:
    for text in (_NOT_JSON, ""):
        _expect_returned(probe, text)


def _long(probe: Probe) -> None:
    _expect_returned(probe, '{"extended_metadata": [{"key": "k", "type": "str", "value": "' + 20_000 * "x" + '"}]}')


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
           sentence="An output's parameters contain the metadata of its input."),
    Clause(id="CV2K-031", level=_MUST, source=_PAGE, check=_filled, needed_for=_STORED, requires=("CV2K-030",),
           sentence="Metadata with standard_metadata filled in by Chariot is returned too."),
    Clause(id="CV2K-032", level=_MUST, source='Chariot, "Inference Store"', check=_list, needed_for=_STORED,
           requires=("CV2K-030",), sentence="Metadata that is a bare list of entries is returned too."),
    Clause(id="CV2K-033", level=_MUST, source=f"{_PAGE}: copied through", check=_spaced, needed_for=_STORED,
           requires=("CV2K-030",),
           sentence="Metadata is not parsed and serialized again: spaces, numbers and repeated keys stay."),
    Clause(id="CV2K-034", level=_MUST, source=f"{_PAGE}: copied through", check=_unicode, needed_for=_STORED,
           requires=("CV2K-030",), sentence="Metadata can contain any Unicode text."),
    Clause(id="CV2K-035", level=_MUST, source=f"{_PAGE}: copied through", check=_not_json, needed_for=_STORED,
           requires=("CV2K-030",), sentence="Metadata that is not JSON is returned too, without an error."),
    Clause(id="CV2K-036", level=_MUST, source=f"{_PAGE}: the matching output", check=_matching, needed_for=_STORED,
           requires=("CV2K-030", "CV2K-010", "CV2K-011", "CV2K-035"),
           sentence="With several inputs, each output has the metadata of its own input."),
    Clause(id="CV2K-037", level=Level.SHOULD, source=_PAGE, check=_not_invented, needed_for=_STORED,
           requires=("CV2K-009",), sentence="Without metadata in the input, the output has none."),
    Clause(id="CV2K-038", level=_MUST, source=_PAGE, check=_long, needed_for=_STORED, requires=("CV2K-030",),
           sentence="Metadata of 20,000 characters is returned in full."),
)  # fmt: skip
