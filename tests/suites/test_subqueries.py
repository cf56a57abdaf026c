"""A metric over subqueries is known of each of them, and its mean over base queries is mteb's."""

from __future__ import annotations

import numpy as np

from suites._mteb.examples import _per_query


def test_the_mean_over_base_queries_is_that_of_mteb() -> None:
    from mteb._evaluators.retrieval_metrics import max_over_subqueries

    rng = np.random.default_rng(3)
    documents = [f"d{n}" for n in range(12)]
    judged, found = {}, {}
    for base in ("a", "b_c", "d"):
        relevant = {str(name): 1 for name in rng.choice(documents, size=3, replace=False)}
        for part in range(3):
            judged[f"{base}_{part}"] = relevant
            names = rng.choice(documents, size=8, replace=False)
            found[f"{base}_{part}"] = {str(name): float(rng.normal()) for name in names}
    scored = _per_query("max_over_subqueries_map_at_1000", judged, found)
    assert list(scored) == list(judged)
    by_base = {query.rpartition("_")[0]: value for query, value in scored.items()}
    expected = max_over_subqueries(judged, found, [1, 3, 5, 10, 20, 100, 1000])[
        "max_over_subqueries_map_at_1000"
    ]
    assert np.isclose(np.mean([*by_base.values()]), expected, atol=1e-5)
    assert len({scored[f"a_{part}"] for part in range(3)}) == 1
