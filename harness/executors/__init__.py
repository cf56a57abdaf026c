"""Executors run the jobs of a plan: on this machine, on a Ray cluster, or through Slurm."""
