"""Find out whether the checks of Chariot's protocols are for the engine's model."""

import httpx

from app.plugins.conformance.chariot.image_probe import required_parameters
from app.plugins.conformance.check import NotApplicableError
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError
from app.plugins.conformance.open_inference import messages
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import TEXTS, is_list, is_object

_ABOUT = "About models that take images and return items"


def expect_image_model(probe: Probe) -> None:
    """Raise a `NotApplicableError` if the engine's metadata shows that the model is for tensors or texts.

    Metadata alone is no proof: the engine must also reject an image, or answer it with the tensors of its metadata.
    """
    if probe.target.task_type:
        return
    try:
        exchange = probe.images.send(probe, SAMPLE_IMAGES[0], required_parameters(probe))
        if _is_answered_with_items(probe, exchange):
            return
        metadata = messages.metadata_of(probe)
        tensors = ", ".join(f"{tensor.name} {tensor.datatype} {tensor.shape}" for tensor in metadata.inputs)
        if exchange.ok:
            known = {(tensor.name, tensor.datatype) for tensor in metadata.outputs if tensor.datatype != "BYTES"}
            outputs = exchange.object().get("outputs")
            objects = [output for output in outputs if is_object(output)] if is_list(outputs) else []
            named = [(output.get("name"), output.get("datatype")) for output in objects]
            if named and known.issuperset(named):
                raise NotApplicableError(f"{_ABOUT}; this one returns tensors, such as {named[0][0]}")
        elif exchange.rejected and metadata.inputs and all(tensor.datatype != "BYTES" for tensor in metadata.inputs):
            raise NotApplicableError(f"{_ABOUT}; this one takes tensors: {tensors}")
        if (exchange.ok or exchange.rejected) and _answers_text(probe):
            raise NotApplicableError(f"{_ABOUT}; this one takes texts: {tensors}")
    except (httpx.HTTPError, httpx.InvalidURL, InconclusiveError, ViolationError):
        # The checks report what is wrong.
        return


def _is_answered_with_items(probe: Probe, exchange: Exchange) -> bool:
    if not exchange.ok:
        return False
    try:
        # Models of tensors may answer with tensors in place of items.
        return all(is_object(item) and "datatype" not in item for item in probe.images.read_items(exchange))
    except InconclusiveError:
        return False


def _answers_text(probe: Probe) -> bool:
    """Return whether the model answers a text in place of an image, as no model of images does."""
    inputs = messages.build_request(probe)["inputs"]
    texts = [
        {**tensor, "data": [TEXTS[0]] * len(tensor["data"])} if tensor["datatype"] == "BYTES" else tensor
        for tensor in inputs
    ]
    return messages.infer(probe, {"inputs": texts}).ok
