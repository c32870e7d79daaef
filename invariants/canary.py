"""What the canary promises, and does not keep on purpose: see `model/canary.py`."""

from __future__ import annotations

from invariants.properties import always, sometimes
from model.canary import Config, State, canary


@always(canary)
def there_are_never_fewer_than_none(cfg: Config, s: State) -> bool:
    """The store holds no fewer tokens than none and no more than its most."""
    return 0 <= s.tokens <= cfg.most


@always(canary)
def five_are_never_taken(cfg: Config, s: State) -> bool:
    """No more than four tokens are ever taken. It is false, so that a broken property is always there to report."""
    return s.taken <= 4


@sometimes(canary)
def the_store_is_full(cfg: Config, s: State) -> bool:
    """There are as many tokens as the store holds."""
    return s.tokens == cfg.most
