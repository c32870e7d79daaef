"""Entry cache, checked by CrossHair: permits agree between model and implementation."""

from __future__ import annotations

from invariants.proofs.claim import Answer, Control, claim, explored
from invariants.proofs.entry_cache import contracts

IMPL = "impl.entry_cache.reads_limiter"


@claim(
    "permit-acquisition-agrees",
    "crosshair",
    "A request for permits has the same outcome and leaves the same limiter in model and implementation, if at most "
    "one request is queued.",
    Control(
        "the implementation grants an oversized request more than the maximum",
        IMPL,
        "taken = min(permits, self.most)",
        "taken = permits",
    ),
)
def requests_agree() -> Answer:
    """Equivalence of `Permits.fits`, `take` and `acquire` with the model's."""
    return explored(contracts.requests_agree)


@claim(
    "permit-grants-agree",
    "crosshair",
    "After a release, model and implementation grant permits to the same of two queued requests and fail the same.",
    Control(
        "the implementation's timeout is not strict at a release",
        IMPL,
        "if now_ns - since_ns > self.timeout_ns:",
        "if now_ns - since_ns >= self.timeout_ns:",
    ),
)
def grants_agree() -> Answer:
    """Equivalence of `Permits.grant_queued` with the model's, for two queued requests."""
    return explored(contracts.grants_agree)


claims = (requests_agree, grants_agree)
