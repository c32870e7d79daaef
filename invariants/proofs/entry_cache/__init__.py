"""What solvers have shown about the entry cache.

    permits   the limiter of reads in flight: `entry_cache_permits.py`
    reads     joining outstanding reads, and what storage brings: `entry_cache_reads.py`
    total     the sum of all sizes, and the eviction that it triggers: `entry_cache_total.py`

About a loop, the claims are of the loop as the model's source says it, for any number of rounds.
"""

from __future__ import annotations

from invariants.proofs.claim import Answer, Control, claim, explored
from invariants.proofs.entry_cache import contracts, permits, reads, total

IMPL = "impl.entry_cache.reads_limiter"


@claim(
    "permit-requests-agree",
    "crosshair",
    "A request for permits, of a limiter for which one request waits or none, has the same answer and leaves the same "
    "limiter in model and implementation.",
    Control(
        "the implementation takes all that a large request wants",
        IMPL,
        "taken = min(permits, self.bounds)",
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


claims = (*total.claims, *permits.claims, *reads.claims, requests_agree, handing_on_agrees)
