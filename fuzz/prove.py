"""Checks the claims about the components, and refutes each claim's control (`invariants/proofs/claim.py`).

The check of a claim runs in two processes: in one on the unchanged source, in the other with the control's change in
one module. A process that exceeds its time limit is killed; the verdict is `unknown`. If Z3 proves the claim in the
first process, that process also checks that the proof is not vacuous (`invariants/proofs/scrutiny.py`), with states
that random traces of the model reach.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from rich.console import Console

from fuzz.platform.processes import without_interrupts
from fuzz.platform.progress import showing
from fuzz.run.generate import plan_trace, possible_calls
from fuzz.seeding import replaced_source, use_source
from fuzz.subject import find_subject, subject_names
from invariants.proofs.claim import POSTCONDITION, Answer, Claim, Control, answer, recorded
from invariants.proofs.scrutiny import Sample, listed, objection
from model.machine import BadValue

#: Seconds that one check may take before its process is killed.
LIMIT = 240.0

#: Number of random traces from which states are sampled, their length, and the interval between samples, in steps.
SAMPLED_TRACES, SAMPLED_STEPS, SAMPLED_EVERY = 6, 60, 12

#: The verdicts with which a claim is proved.
PROOFS = ("proved", "confirmed_over_all_paths")
#: The verdicts with which a claim holds. CrossHair may have looked at only some paths without finding a counterexample.
HOLDS = (*PROOFS, "no_counterexample")


def claims_about(subject: str) -> tuple[Claim, ...]:
    """Returns the claims about a component, in the order of its file in `invariants/proofs/`; empty without a file."""
    module = f"invariants.proofs.{subject}"
    if importlib.util.find_spec(module) is None:
        return ()
    claims: tuple[Claim, ...] = importlib.import_module(module).claims
    return claims


def run_prove(names: list[str], console: Console) -> dict[str, Any]:
    """Checks all claims about the named components, by default about all. Returns {"claims": a row for each claim}.

    Raises BadValue for an unknown component, or one without claims, and RuntimeError if `ask` does. Cost: seconds for
    each claim.
    """
    chosen = _chosen(names)
    rows: list[dict[str, Any]] = []
    with showing(console, "starting") as update, ThreadPoolExecutor(os.cpu_count()) as threads:
        for (subject, claim), row in zip(chosen, threads.map(lambda pair: row_of(*pair), chosen), strict=True):
            rows.append(row)
            update(len(rows), len(chosen), f"{subject}: {claim.id}")
    return {"claims": rows}


def _chosen(names: list[str]) -> list[tuple[str, Claim]]:
    with_claims = [name for name in subject_names() if claims_about(name)]
    for name in names:
        find_subject(name)
        if name not in with_claims:
            raise BadValue(f"there are no claims about {name}; there are claims about {', '.join(with_claims)}")
    return [(name, claim) for name in names or with_claims for claim in claims_about(name)]


def row_of(subject: str, claim: Claim) -> dict[str, Any]:
    """Checks a claim and its control. Returns the claim's row. Raises RuntimeError if `ask` does."""
    started = time.perf_counter()
    found = ask(subject, claim.id)
    seconds = time.perf_counter() - started
    try:
        broken = ask(subject, claim.id, claim.control)
    except BadValue as problem:
        broken = Answer("unknown", str(problem))
    refuted = broken.verdict == "refuted" and statement_to_refute(claim) in broken.failed
    return {
        "id": claim.id,
        "subject": subject,
        "tool": claim.tool,
        "claim": claim.says,
        "source": claim.source,
        "verdict": found.verdict,
        "detail": found.detail,
        "paths": found.paths,
        "steps": found.steps,
        "compared": found.compared,
        "assumes": list(found.assumes),
        "seconds": round(seconds, 3),
        "control": claim.control.about,
        "control_refuted": refuted,
        "control_detail": broken.detail if refuted else _not_refuted(claim, broken),
    }


def statement_to_refute(claim: Claim) -> str:
    """Returns the name of the statement that must fail under the control of a claim. A Z3 claim always names one."""
    return claim.control.refutes or (POSTCONDITION if claim.tool == "crosshair" else "")


def _not_refuted(claim: Claim, broken: Answer) -> str:
    """Returns why a control counts as not refuted."""
    if broken.verdict != "refuted":
        return f"{broken.verdict}: {broken.detail}"
    return f"refuted by {', '.join(broken.failed)}, not by {statement_to_refute(claim)!r}: {broken.detail}"


def holds(row: dict[str, Any]) -> bool:
    """Returns whether, by its row, a claim holds and its control was refuted."""
    return row["verdict"] in HOLDS and bool(row["control_refuted"])


def ask(subject: str, claim: str, change: Control | None = None, limit: float = LIMIT) -> Answer:
    """Runs the check of the claim with this id in a process of its own, on the unchanged source or with a change.

    Returns the check's answer; `unknown` after `limit` seconds, or if the check fails on the changed source. Raises
    BadValue if the change does not apply, and RuntimeError if the check fails on the unchanged source.
    """
    if change is None:
        return _ask(subject, claim, None, limit)
    return _ask(subject, claim, (change.module, changed(claim, change)), limit)


def changed(claim: str, change: Control) -> str:
    """Returns the changed source of a control's module. `claim` is the id of the control's claim, for error messages.

    Raises BadValue if the change does not apply.
    """
    return replaced_source(f"the control of {claim}", change.module, change.find, change.replace)


def _ask(subject: str, claim: str, changed_module: tuple[str, str] | None, limit: float) -> Answer:
    """Like `ask`. `changed_module` is the name of a module and its changed source; None without a change."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer_to, args=(subject, claim, changed_module, theirs), daemon=True)
    with without_interrupts():
        process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            return Answer("unknown", f"no answer within {limit:g} s")
        sent = ours.recv()
    except EOFError:
        process.join()
        sent = f"the process ended with exit code {process.exitcode} and no answer"
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(sent, tuple):
        return Answer(*sent)
    if changed_module is None:
        raise RuntimeError(f"the check of {claim} failed: {sent}")
    return Answer("unknown", f"the check fails on the changed source: {sent.strip().splitlines()[-1]}")


def _answer_to(subject: str, claim: str, changed_module: tuple[str, str] | None, pipe: Connection) -> None:
    """Runs a check in the child process. Sends the check's answer as a tuple, or a traceback as text."""
    try:
        if changed_module is not None:
            use_source(*changed_module)
        [check] = [c.check for c in claims_about(subject) if c.id == claim]
        with recorded() as proofs:
            found = answer(check)
        if changed_module is None and found.verdict == "proved":
            why = objection(check, proofs, sampled(subject))
            found = found if why is None else found._replace(verdict="unknown", detail=why)
            found = found._replace(assumes=tuple(listed(proofs)))
        pipe.send(tuple(found))
    except Exception:
        pipe.send(traceback.format_exc())


def sampled(name: str) -> list[Sample]:
    """Returns states that random traces of a component's model reach under the reference rules. The seeds are fixed."""
    subject = find_subject(name)
    samples: list[Sample] = []
    for seed in range(SAMPLED_TRACES):
        plan, chance = plan_trace(subject, subject.machine.config(), seed, SAMPLED_STEPS)
        choose = possible_calls(subject, plan.config).chooser(plan.config, plan.swarm, chance)
        state = subject.machine.start(plan.config)
        for step in range(SAMPLED_STEPS):
            chosen, arguments = choose(state)
            state, _ = chosen.run(plan.config, state, *arguments)
            if step % SAMPLED_EVERY == 0:
                samples.append(Sample(plan.config, state))
    return samples
