"""Reads functions written in a subset of Python and turns them into Z3 terms.

    from invariants.proofs.symbolic import Reader, unknown

    reader = Reader([n >= 0])                      # facts that every path may assume
    for path in reader.paths(function, n, state):  # every feasible path through the function
        path.when                                  # its path condition: a list of Z3 terms
        path.value                                 # the value it returns, as a symbolic value
    reader.call(function, n)                       # all paths merged into one value
    reader.loop(function)                          # a loop: what precedes it, one iteration, what follows it

Nothing is guessed: source outside the subset, and every operation that could raise and is not shown safe, raises
`UnsupportedError` with the offending source. The subset is documented in `README.md` in this folder.

    values        symbolic values (`Maybe`, `Rec`, `Seq`, ...) and `unknown`, which makes one for any annotated type
    bitmasks      integers of any length as sets of bit positions
    operators     Python's operators and built-in functions on symbolic values
    expressions   expressions; statements, paths and loops are in `reader`
    forgetting    readings in which nothing is known of any result, to find statements that say nothing
    evaluation    symbolic values evaluated for given inputs, to compare a reading with a run of the function
"""

from __future__ import annotations

from invariants.proofs.symbolic import bitmasks
from invariants.proofs.symbolic.bitmasks import MASK
from invariants.proofs.symbolic.evaluation import Evaluator, LoopEvaluator, bind, bind_seq, evaluate, evaluator
from invariants.proofs.symbolic.expressions import Path, PathCondition
from invariants.proofs.symbolic.forgetting import forgotten_results
from invariants.proofs.symbolic.operators import ordered
from invariants.proofs.symbolic.reader import AT, OVER, Loop, Reader
from invariants.proofs.symbolic.values import (
    FORGETS,
    SUM,
    TOKEN,
    Choice,
    Chosen,
    Double,
    Heard,
    Listener,
    Maybe,
    Measures,
    Rec,
    Root,
    Seq,
    Tally,
    UnsupportedError,
    Word,
    applications,
    as_term,
    code_of,
    coerced,
    equal,
    exact,
    lifted,
    merged,
    power,
    rounded,
    truth,
    unknown,
)

__all__ = [
    "AT",
    "FORGETS",
    "MASK",
    "OVER",
    "SUM",
    "TOKEN",
    "Choice",
    "Chosen",
    "Double",
    "Evaluator",
    "Heard",
    "Listener",
    "Loop",
    "LoopEvaluator",
    "Maybe",
    "Measures",
    "Path",
    "PathCondition",
    "Reader",
    "Rec",
    "Root",
    "Seq",
    "Tally",
    "UnsupportedError",
    "Word",
    "applications",
    "as_term",
    "bind",
    "bind_seq",
    "bitmasks",
    "code_of",
    "coerced",
    "equal",
    "evaluate",
    "evaluator",
    "exact",
    "forgotten_results",
    "lifted",
    "merged",
    "ordered",
    "power",
    "rounded",
    "truth",
    "unknown",
]
