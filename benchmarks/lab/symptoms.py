"""The six symptoms: each cause switched off and on, and what is seen of it."""

from __future__ import annotations

from benchmarks.lab.machine import CHATS, DOCUMENTS, MACHINE
from benchmarks.lab.page import Claim, Page, Table
from benchmarks.lab.symptom import Symptom
from benchmarks.lab.symptoms_of_memory import coarse_blocks, left_clients, long_answers
from benchmarks.lab.symptoms_of_steps import hold, long_prompts, recomputing

#: in the order in which they are stated
SYMPTOMS = (hold, long_prompts, recomputing, long_answers, coarse_blocks, left_clients)


def experiment() -> Page:
    """Run all, and write the page."""
    found = [make() for make in SYMPTOMS]
    return Page(
        name="symptoms",
        title="Six symptoms that batching is blamed for: what causes each?",
        setup=f"""
            {MACHINE}. Each cause is switched alone, on the same requests. *Chats* have {CHATS};
            *documents* have {DOCUMENTS}; they come by a Poisson process where a rate is named, and
            seeds are fixed. Unless said, 64 slots, 2,048 tokens a step, all memory, continuous
            batches.
        """,
        results=tuple(_table(number, each) for number, each in enumerate(found, 1)),
        answer=f"""
            All {len(found)} symptoms come and go with the cause that is stated for each, with
            everything else as it was. None is batching itself: each is a decision of who waits,
            for what and how long, that can be taken otherwise.
        """,
        claims=tuple(_claim(each) for each in found),
    )


def _table(number: int, symptom: Symptom) -> Table:
    title = (
        f"### {number}. {symptom.name[0].upper()}{symptom.name[1:]}\n\n"
        f"Cause: {symptom.cause}. What helps: {symptom.cure}.\n\n{symptom.setup}"
    )
    rows = tuple(
        (each.name, each.shown(each.off), f"**{each.shown(each.on)}**") for each in symptom.figures
    )
    return Table(title, ("figure", "cause off", "cause on"), rows)


def _claim(symptom: Symptom) -> Claim:
    moved = "; ".join(
        f"{each.name} {'rises' if each.rises else 'falls'} from {each.shown(each.off)} to "
        f"{each.shown(each.on)}"
        for each in symptom.figures
    )
    return Claim(
        f"{symptom.cause}: {moved}",
        all(each.is_seen for each in symptom.figures),
    )
