"""Check that an engine of chariot-v2-kserve returns custom metadata unchanged."""

from collections.abc import Callable

from app.conformance.chariot.envelope import example_output, infer, needed_input, output_parameters, outputs
from app.conformance.check import Check, Level, Need, expect, quote
from app.conformance.client.probe import Probe

_PAGE = 'Chariot, "Inference Protocols", Custom Metadata'
_STANDARD = '{"standard_metadata": {}, "extended_metadata": [{"key": "a", "type": "int", "value": "1"}]}'
_FILLED = '{"standard_metadata": {"latitude": 51.5, "longitude": -0.12}, "extended_metadata": []}'
_LIST = '[{"key": "camera", "type": "str", "value": "7"}, {"key": "speed", "type": "float", "value": "1.50"}]'
_SPACED = '{ "b" : 1.0,\n\t"a" : 1e2, "b" : "\\u00e9" }'
_UNICODE = '{"place": "Zürich 東京 🛰 \u2028", "quote": "\\"\\\\"}'
_NOT_JSON = "not JSON: {[ 'x' NaN"
_LONG = '{"extended_metadata": [{"key": "k", "type": "str", "value": "' + 20_000 * "x" + '"}]}'


def _returned(*texts: str) -> Callable[[Probe], None]:
    """Return a check that each text, sent as metadata, is in the response."""

    def run(probe: Probe) -> None:
        for text in texts:
            got = output_parameters(example_output(probe, {"metadata": text})).get("metadata")
            expect(got == text, f"outputs[0].parameters.metadata to be {quote(text)}", got)

    return run


def _matching(probe: Probe) -> None:
    texts = {f"image-{index}": text for index, text in enumerate((_STANDARD, _LIST, _NOT_JSON))}
    inputs = [needed_input(probe, parameters={"metadata": text}, name=name) for name, text in texts.items()]
    returned = {
        str(output.get("name")): output_parameters(output).get("metadata") for output in outputs(infer(probe, inputs))
    }
    for name, text in texts.items():
        expect((got := returned.get(name)) == text, f"the metadata of {name}, {quote(text)}", got)


def _not_invented(probe: Probe) -> None:
    got = output_parameters(example_output(probe))
    expect("metadata" not in got, "no metadata", got.get("metadata"))


_MUST = Level.MUST
_COPIED = f"{_PAGE}: copied through"
_STORED = (Need.STORAGE,)
_RETURNED = ("CV2K-030",)

CHECKS = (
    Check("CV2K-030", _MUST, "An output's parameters contain the metadata of its input.", _PAGE, _returned(_STANDARD),
          _STORED, ("CV2K-009",)),
    Check("CV2K-031", _MUST, "Metadata with standard_metadata filled in by Chariot is returned too.", _PAGE,
          _returned(_FILLED), _STORED, _RETURNED),
    Check("CV2K-032", _MUST, "Metadata that is a bare list of entries is returned too.", 'Chariot, "Inference Store"',
          _returned(_LIST), _STORED, _RETURNED),
    Check("CV2K-033", _MUST, "Metadata is not parsed and serialized again: spaces, numbers and repeated keys stay.",
          _COPIED, _returned(_SPACED), _STORED, _RETURNED),
    Check("CV2K-034", _MUST, "Metadata can contain any Unicode text.", _COPIED, _returned(_UNICODE), _STORED,
          _RETURNED),
    Check("CV2K-035", _MUST, "Metadata that is not JSON is returned too, without an error.", _COPIED,
          _returned(_NOT_JSON, ""), _STORED, _RETURNED),
    Check("CV2K-036", _MUST, "With several inputs, each output has the metadata of its own input.",
          f"{_PAGE}: the matching output", _matching, _STORED, ("CV2K-030", "CV2K-010", "CV2K-011", "CV2K-035")),
    Check("CV2K-037", Level.SHOULD, "Without metadata in the input, the output has none.", _PAGE, _not_invented,
          _STORED, ("CV2K-009",)),
    Check("CV2K-038", _MUST, "Metadata of 20,000 characters is returned in full.", _PAGE, _returned(_LONG), _STORED,
          _RETURNED),
)  # fmt: skip
