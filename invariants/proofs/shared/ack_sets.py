"""Any ack sets, and a reader to which an ack set is its number of words and its mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import z3  # type: ignore[import-untyped]

from invariants.proofs.claim import Proof
from invariants.proofs.symbolic import Maybe, Reader, Rec, bitmasks, lifted
from model import ack_set as model
from model.ack_set import Config


class Words(NamedTuple):
    """A set as an array: how many words it has, and its mask."""

    length: int
    mask: object

    @staticmethod
    def none() -> Rec:
        """No words."""
        return Rec(Words, {"length": z3.IntVal(0), "mask": bitmasks.NONE})

    @staticmethod
    def has_any(words: Rec) -> Any:
        """Whether there is a word."""
        return words.fields["length"] > 0

    @staticmethod
    def length_of(words: Rec) -> Any:
        """How many words there are."""
        return words.fields["length"]


def mask_of(words: Any) -> Any:
    """Stands in for the mask of a set that is there: the type checker has looked."""
    return (words.value if isinstance(words, Maybe) else words).fields["mask"]


class Sets:
    """Any sets, and a reader to which a set is its length and its mask."""

    def __init__(self) -> None:
        self.proof, self.place = Proof(), z3.Int("i")
        self.cfg = lifted(Config()).replace({"batch_size": z3.Int("batch size")})
        self.known: list[Any] = [self.cfg.fields["batch_size"] >= 0, self.place >= 0]
        self._made = 0
        stubs: dict[Callable[..., Any], Callable[..., Any]] = {
            model.mask_of: mask_of,
            model.words_of: self._words_of,
            model.all_of: bitmasks.below,
            model.first_of: self._first_of,
        }
        self.reader = Reader(self.known, stubs=stubs)

    def any_set(self, name: str) -> Rec:
        """Any set: no bit of it is beyond its words."""
        return self._ending(z3.Int(f"words of {name}"), bitmasks.unknown_mask(name))

    def _ending(self, length: Any, mask: Any) -> Rec:
        bit = z3.Int("(any bit)")
        self.known += [length >= 0, z3.ForAll([bit], z3.Implies(mask[bit], z3.And(bit >= 0, bit < 64 * length)))]
        return Rec(Words, {"length": length, "mask": mask})

    def _words_of(self, mask: Any) -> Rec:
        """Stands in for the words of a mask, of which the last is not zero."""
        self._made += 1
        words, last = self._ending(z3.Int(f"words#{self._made}"), mask), z3.Int(f"last#{self._made}")
        length = words.fields["length"]
        self.known.append(z3.Implies(length > 0, z3.And(mask[last], last >= 64 * (length - 1))))
        return words

    def _first_of(self, mask: Any) -> Any:
        """Stands in for the first bit of a mask; -1 if there is none."""
        self._made += 1
        first, bit = z3.Int(f"first#{self._made}"), z3.Int("(any bit)")
        none = z3.ForAll([bit], z3.Not(z3.And(bit >= 0, mask[bit])))
        before = z3.ForAll([bit], z3.Implies(z3.And(bit >= 0, bit < first), z3.Not(mask[bit])))
        self.known.append(z3.Or(z3.And(first == -1, none), z3.And(first >= 0, mask[first], before)))
        return first
