"""Checks made by hand, for tests of what prints and shows them."""

from __future__ import annotations

from dataclasses import replace

from harness.checks.outcome import Check, CheckedModel, MeanOutcome, TaskOutcome

POLICY = {"alpha": 0.05, "task_alpha": 0.02, "margin": "auto", "mean_margin": "auto", "changed": 0.15}

TASKS = (
    TaskOutcome(
        task="SciFact",
        type="Retrieval",
        suites=("mteb",),
        metric="ndcg_at_10",
        verdict="regressed",
        candidate=0.61,
        baseline=0.645,
        delta=-0.035,
        low=-0.05,
        high=-0.02,
        p=0.0004,
        margin=0.025,
        margin_source="stated",
        detectable=0.017,
        error=0.0073,
        unit="queries",
        units=300,
        runs=(1, 1),
        candidate_keys=("a" * 64,),
        baseline_keys=("b" * 64,),
    ),
    TaskOutcome(
        task="STSBenchmark",
        type="STS",
        suites=("mteb",),
        metric="cosine_spearman",
        verdict="passed",
        candidate=0.8203,
        baseline=0.8201,
        delta=0.0002,
        low=-0.001,
        high=0.0014,
        p=0.00001,
        margin=0.01,
        margin_source="stated",
        detectable=0.0014,
        error=0.0006,
        unit="pairs",
        units=1379,
        runs=(1, 1),
    ),
    TaskOutcome(
        task="Banking77Classification",
        type="Classification",
        suites=("mteb",),
        metric="accuracy",
        verdict="inconclusive",
        candidate=0.79,
        baseline=0.8,
        delta=-0.01,
        low=-0.021,
        high=0.001,
        p=0.11,
        margin=0.016,
        margin_source="stated",
        detectable=0.011,
        error=0.0048,
        suspect=True,
        unit="texts",
        units=3080,
        runs=(3, 5),
        noise=0.004,
        to_settle="about 9,000 texts or about 12 seeds of each",
    ),
    TaskOutcome(
        task="MindSmallReranking",
        type="Reranking",
        suites=("mteb",),
        metric="max_over_subqueries_map_at_1000",
        verdict="not testable",
        reason="no per-query results are kept of this metric",
        candidate=0.3,
        baseline=0.31,
        delta=-0.01,
        runs=(1, 1),
    ),
    TaskOutcome(
        task="TRECCOVID & <others>",
        type="Retrieval",
        suites=("mteb",),
        metric="ndcg_at_10",
        verdict="missing",
        reason="the candidate has no score: its data cannot be had",
        baseline=0.5,
    ),
)


def small_check(**changed: object) -> Check:
    """A check with a task of every kind of verdict, regressed as a whole."""
    check = Check(
        id="0123456789ab",
        when="2026-01-02T03:04:05+00:00",
        candidate=CheckedModel(name="nightly-0102", source="runs/nightly-0102", artifacts=("c" * 64,)),
        baseline=CheckedModel(
            name="all-MiniLM-L6-v2", source="release", artifacts=("d" * 64,), baseline="release"
        ),
        suites=("mteb",),
        policy=POLICY,
        overall="regressed",
        because=("SciFact regressed: −3.50 [−5.00, −2.00] points, p 0.0004.",),
        exit_code=1,
        tasks=TASKS,
        means=(
            MeanOutcome(
                suite="mteb",
                verdict="regressed",
                candidate=0.74,
                baseline=0.755,
                delta=-0.015,
                low=-0.022,
                high=-0.008,
                p=0.00002,
                margin=0.005,
                margin_source="stated",
                detectable=0.0031,
                error=0.0036,
                there=3,
                wanted=5,
            ),
        ),
        warnings=("torch 2.10.0 made the baseline, 2.11.0 the candidate.",),
        seconds=0.12,
    )
    return replace(check, **changed)  # type: ignore[arg-type]
