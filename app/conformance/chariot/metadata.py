"""Check that an engine of chariot-v2-kserve returns custom metadata unchanged."""

from collections.abc import Sequence

from app.conformance.chariot.envelope import IMAGE_PROBE, example, image_input, infer, output_parameters, outputs
from app.conformance.check import Check, Level, Need, ViolationError
from app.conformance.client.probe import Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import SAMPLE_IMAGES

__all__ = ("CHECKS",)

_PAGE = 'Chariot, "Inference Protocols", Custom Metadata'
_STANDARD = '{"standard_metadata": {}, "extended_metadata": [{"key": "a", "type": "int", "value": "1"}]}'
_FILLED = '{"standard_metadata": {"latitude": 51.5, "longitude": -0.12}, "extended_metadata": []}'
_LIST = '[{"key": "camera", "type": "str", "value": "7"}, {"key": "speed", "type": "float", "value": "1.50"}]'
_SPACED = '{ "b" : 1.0,\n\t"a" : 1e2, "b" : "\\u00e9" }'
_UNICODE = '{"place": "Zürich 東京 🛰 \u2028", "quote": "\\"\\\\"}'
_NOT_JSON = "not JSON: {[ 'x' NaN"


def _expect_returned(probe: Probe, text: str) -> None:
    got = output_parameters(outputs(example(probe, {"metadata": text}))[0]).get("metadata")
    if got != text:
        raise ViolationError(f"Expected outputs[0].parameters.metadata to be {quote(text)}, got {quote(got)}")


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
    needed = IMAGE_PROBE.required_parameters(probe)
    inputs = [
        image_input(SAMPLE_IMAGES[0], {**needed, "metadata": text}, name=f"image-{index}")
        for index, text in enumerate(texts)
    ]
    metadata_by_name = {
        str(output.get("name")): output_parameters(output).get("metadata") for output in outputs(infer(probe, inputs))
    }
    for index, text in enumerate(texts):
        if (got := metadata_by_name.get(f"image-{index}")) != text:
            raise ViolationError(f"Expected the metadata of image-{index}, {quote(text)}, got {quote(got)}")


def _not_invented(probe: Probe) -> None:
    got = output_parameters(outputs(example(probe))[0])
    if "metadata" in got:
        raise ViolationError(f"Expected no metadata, got {quote(got['metadata'])}")


_MUST = Level.MUST
_STORED = (Need.STORAGE,)

CHECKS = (
    Check(id="CV2K-030", level=_MUST, source=_PAGE, run=_standard, needed_for=_STORED, requires=("CV2K-009",),
          sentence="An output's parameters contain the metadata of its input."),
    Check(id="CV2K-031", level=_MUST, source=_PAGE, run=_filled, needed_for=_STORED, requires=("CV2K-030",),
          sentence="Metadata with standard_metadata filled in by Chariot is returned too."),
    Check(id="CV2K-032", level=_MUST, source='Chariot, "Inference Store"', run=_list, needed_for=_STORED,
          requires=("CV2K-030",), sentence="Metadata that is a bare list of entries is returned too."),
    Check(id="CV2K-033", level=_MUST, source=f"{_PAGE}: copied through", run=_spaced, needed_for=_STORED,
          requires=("CV2K-030",),
          sentence="Metadata is not parsed and serialized again: spaces, numbers and repeated keys stay."),
    Check(id="CV2K-034", level=_MUST, source=f"{_PAGE}: copied through", run=_unicode, needed_for=_STORED,
          requires=("CV2K-030",), sentence="Metadata can contain any Unicode text."),
    Check(id="CV2K-035", level=_MUST, source=f"{_PAGE}: copied through", run=_not_json, needed_for=_STORED,
          requires=("CV2K-030",), sentence="Metadata that is not JSON is returned too, without an error."),
    Check(id="CV2K-036", level=_MUST, source=f"{_PAGE}: the matching output", run=_matching, needed_for=_STORED,
          requires=("CV2K-030", "CV2K-010", "CV2K-011", "CV2K-035"),
          sentence="With several inputs, each output has the metadata of its own input."),
    Check(id="CV2K-037", level=Level.SHOULD, source=_PAGE, run=_not_invented, needed_for=_STORED,
          requires=("CV2K-009",), sentence="Without metadata in the input, the output has none."),
    Check(id="CV2K-038", level=_MUST, source=_PAGE, run=_long, needed_for=_STORED, requires=("CV2K-030",),
          sentence="Metadata of 20,000 characters is returned in full."),
)  # fmt: skip
