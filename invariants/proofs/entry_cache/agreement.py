"""Entry cache, checked by CrossHair: permits agree between model and implementation."""

from __future__ import annotations

from invariants.proofs.claim import Answer, Control, claim, explored
from invariants.proofs.entry_cache import contracts

IMPL = "impl.entry_cache.reads_limiter"


@claim(
    "permit-requests-agree",
    "crosshair",
    "A request for permits, of a limiter for which one request waits or none, has the same answer and leaves the same "
    "limiter in model and implementation.",
    Control(
        "the implementation takes all that a large request wants",
        IMPL,
        "taken = min(permits, self.most)",
        "taken = permits",
    ),
)
def requests_agree() -> Answer:
    """Equivalence of `Permits.fits`, `take` and `acquire` with the model's."""
    return explored(contracts.requests_agree)


@claim(
    "permits-handed-on-agree",
    "crosshair",
    "Permits that are handed on to two who wait go to the same of them, and the same fail, in model and "
    "implementation.",
    Control(
        "the implementation's timeout is not strict at a release",
        IMPL,
        "if now_ns - since_ns > self.timeout_ns:",
        "if now_ns - since_ns >= self.timeout_ns:",
    ),
)
def handing_on_agrees() -> Answer:
    """Equivalence of `Permits.hand_on` with the model's, for two requests that wait."""
    return explored(contracts.handing_on_agrees)


claims = (requests_agree, handing_on_agrees)
