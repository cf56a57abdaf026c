"""A run in front of a user: what is to come, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.api import Prepared, Report


def carry_out(prepared: Prepared, out: Console, *, quiet: bool) -> Report:
    """Say what is to come, carry it out with a progress bar, and give the report.

    Args:
        prepared: What is to be run.
        out: Where it is said.
        quiet: Say nothing.
    """
    from harness import api
    from harness.progress import Follower

    _announce(prepared, out, quiet=quiet)
    jobs = [job for job in prepared.plan.jobs if job.key not in prepared.plan.known]
    runs = sum(job.kind == "train" for job in jobs)
    with Follower(len(prepared.plan.cells), console=out, runs=runs, quiet=quiet) as follower:
        return api.execute(prepared, follower.listeners)


def _announce(prepared: Prepared, out: Console, *, quiet: bool) -> None:
    """What cannot run and why, before anything is encoded."""
    from harness import treatments
    from harness.failures import impossible, print_failures
    from harness.identity import encoding_identity

    if quiet:
        return
    lost = impossible(prepared)
    if lost:
        out.print(f"{len(lost)} of {len(prepared.plan.cells)} tasks cannot run:", style="bold red")
        print_failures(lost, prepared, out)
    for text, one in zip(prepared.request.models, prepared.asked, strict=True):
        if text != one.artifact.source:
            told = f"{text} is the same model as {one.artifact.name}, and is run once."
            out.print(told, highlight=False, soft_wrap=True)
    for line in _said(prepared):
        out.print(line, highlight=False, soft_wrap=True)
    for one in prepared.subjects:
        how = treatments.how_text(encoding_identity(one.encoding))
        if prepared.recipe is not None and all(cell.laid for cell in prepared.plan.cells):
            how = f"{prepared.recipe.name}, {prepared.recipe.source}"
        out.print(
            f"{prepared.label(one)}: {how}; key {one.artifact.key[:12]}",
            highlight=False,
            style="dim",
            soft_wrap=True,
        )


def _said(prepared: Prepared) -> list[str]:
    """What recipes have to say of their tasks before they begin, each once."""
    tasks: dict[str, list[str]] = {}
    for cell in prepared.plan.open:
        for sentence in cell.laid.says if cell.laid else ():
            tasks.setdefault(sentence, []).append(cell.task.name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {sentence}" for sentence, names in tasks.items()]
    runs = sum(job.kind == "train" for job in prepared.plan.jobs)
    if runs:
        known = len(prepared.plan.known)
        lines.append(f"{runs} runs, of which {known} are there")
    return lines
