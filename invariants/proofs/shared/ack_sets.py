"""Symbolic ack sets of any length, each represented by its number of words and its mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Maybe, Reader, Rec, bitmasks, lifted
from model import ack_set as model
from model.ack_set import Config


class Words(NamedTuple):
    """An ack set: its number of words, and its mask."""

    length: int
    mask: object

    @staticmethod
    def none() -> Rec:
        """Returns the empty ack set."""
        return Rec(Words, {"length": z3.IntVal(0), "mask": bitmasks.NONE})

    @staticmethod
    def has_any(words: Rec) -> Any:
        """Returns whether the ack set has a word."""
        return words.fields["length"] > 0

    @staticmethod
    def length_of(words: Rec) -> Any:
        """Returns the number of words."""
        return words.fields["length"]


def mask_of(words: Any) -> Any:
    """Stub of `mask_of`. Its argument is not None, which mypy checks."""
    return (words.value if isinstance(words, Maybe) else words).fields["mask"]


class Sets:
    """Arbitrary ack sets, an arbitrary message `index`, and a reader with stubs of the functions on words and masks."""

    def __init__(self) -> None:
        self.proof, self.index = Proof(), z3.Int("i")
        self.cfg = lifted(Config()).replace({"batch_size": z3.Int("batch size")})
        self.known: list[Any] = [self.cfg.fields["batch_size"] >= 0, self.index >= 0]
        self._stub_calls = 0
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            model.mask_of: mask_of,
            model.words_of: self._words_of,
            model.bits_below: bitmasks.below,
            model.lowest_set_bit: self._first_of,
        }
        self.reader = Reader(self.known, stubs=stubs)

    def any_set(self, name: str) -> Rec:
        """Returns an arbitrary ack set, without bits beyond its words."""
        return self._with_length(z3.Int(f"words of {name}"), bitmasks.unknown_mask(name))

    def _with_length(self, length: Any, mask: Any) -> Rec:
        """Returns the ack set of this length and mask, and assumes that the mask has no bit beyond the length."""
        bit = z3.Int("(any bit)")
        self.known += [length >= 0, z3.ForAll([bit], z3.Implies(mask[bit], z3.And(bit >= 0, bit < 64 * length)))]
        return Rec(Words, {"length": length, "mask": mask})

    def _words_of(self, mask: Any) -> Rec:
        """Stub of `words_of`: the last word is not zero, because it has the bit `last`."""
        self._stub_calls += 1
        words, last = self._with_length(z3.Int(f"words#{self._stub_calls}"), mask), z3.Int(f"last#{self._stub_calls}")
        length = words.fields["length"]
        self.known.append(z3.Implies(length > 0, z3.And(mask[last], last >= 64 * (length - 1))))
        return words

    def _first_of(self, mask: Any) -> Any:
        """Stub of `lowest_set_bit`: the first bit of a mask, or -1."""
        self._stub_calls += 1
        first, bit = z3.Int(f"first#{self._stub_calls}"), z3.Int("(any bit)")
        none = z3.ForAll([bit], z3.Not(z3.And(bit >= 0, mask[bit])))
        before = z3.ForAll([bit], z3.Implies(z3.And(bit >= 0, bit < first), z3.Not(mask[bit])))
        self.known.append(z3.Or(z3.And(first == -1, none), z3.And(first >= 0, mask[first], before)))
        return first
