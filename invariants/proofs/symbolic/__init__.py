"""Translates functions written in a subset of Python into Z3 terms.

    from invariants.proofs.symbolic import Reader, unknown

    reader = Reader([n >= 0])                      # facts that every path may assume
    for path in reader.paths(function, n, state):  # every feasible path through the function
        path.when                                  # conditions of the path and facts: a list of Z3 terms
        path.value                                 # the returned value, as a symbolic value
    reader.call(function, n)                       # the values of all paths merged into one value
    reader.loop(function)                          # a loop: the code before it, one iteration, the code after it

`UnsupportedError` is raised for source outside the subset, and for an operation that could raise an exception and is
not proved safe. `README.md` in this folder documents the subset.

    values        symbolic values (`Maybe`, `Rec`, `Seq`, ...) and `unknown`, which makes one for any annotated type
    bitmasks      integers of any length as sets of bit positions
    operators     Python's operators and built-in functions on symbolic values
    expressions   expressions; statements, paths and loops are in `reader`
    forgetting    translations with unconstrained results, to detect vacuous statements
    evaluation    symbolic values evaluated for given inputs, to compare a translation with a run of the function
"""

from __future__ import annotations

from invariants.proofs.symbolic import bitmasks
from invariants.proofs.symbolic.bitmasks import MASK
from invariants.proofs.symbolic.evaluation import Evaluator, LoopEvaluator, bind, bind_seq, evaluate, evaluator
from invariants.proofs.symbolic.expressions import Path, PathCondition, can_hold
from invariants.proofs.symbolic.forgetting import unconstrained_results
from invariants.proofs.symbolic.operators import ordered
from invariants.proofs.symbolic.reader import INDEX, ITERATED, Loop, Reader
from invariants.proofs.symbolic.values import (
    FORGETS,
    SUM,
    TOKEN,
    Choice,
    Double,
    Filtered,
    Listener,
    ListenerCall,
    Maybe,
    Measures,
    Rec,
    RecursiveSum,
    Root,
    Seq,
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
    "FORGETS",
    "INDEX",
    "ITERATED",
    "MASK",
    "SUM",
    "TOKEN",
    "Choice",
    "Double",
    "Evaluator",
    "Filtered",
    "Listener",
    "ListenerCall",
    "Loop",
    "LoopEvaluator",
    "Maybe",
    "Measures",
    "Path",
    "PathCondition",
    "Reader",
    "Rec",
    "RecursiveSum",
    "Root",
    "Seq",
    "UnsupportedError",
    "Word",
    "applications",
    "as_term",
    "bind",
    "bind_seq",
    "bitmasks",
    "can_hold",
    "code_of",
    "coerced",
    "equal",
    "evaluate",
    "evaluator",
    "exact",
    "lifted",
    "merged",
    "ordered",
    "power",
    "rounded",
    "truth",
    "unconstrained_results",
    "unknown",
]
