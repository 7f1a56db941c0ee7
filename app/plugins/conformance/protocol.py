"""A protocol that an engine can be checked against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.plugins.conformance.check import Check, Need
from app.plugins.conformance.client.probe import ImageFormat, Probe


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with its checks.

    Args:
        name: the value of `--protocol`.
        checks: each after those that it requires.
        images: the format of images; None if the protocol has no items.
        rpc: whether the protocol uses gRPC.
        check_model: raises `NotApplicableError` if the protocol's checks are not for the engine's model.
    """

    name: str
    checks: Sequence[Check]
    images: ImageFormat | None = None
    rpc: bool = False
    check_model: Callable[[Probe], object] = lambda _: None

    @property
    def needs(self) -> Sequence[Need]:
        """Return the features that depend on at least one check."""
        return [need for need in Need if any(need in check.needed_for for check in self.checks)]
