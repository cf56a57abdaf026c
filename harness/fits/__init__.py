"""Laws through many runs: optima by budget, scaling laws and frontiers, with intervals."""
