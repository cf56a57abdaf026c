#!/bin/bash
# A run on Slurm. This job is the driver: it needs no GPU, plans, submits the workers, and writes what
# they return. Its arguments are those of `harness run`:
#
#   sbatch slurm.sh --model org/name --suite mteb --offline
#
# Change the names of the partitions, the folder, and what a worker gets. docs/cluster.md explains it.
#
#SBATCH --job-name=harness
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=2-00:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

set -euo pipefail

# A folder that every node sees under this name, with a checkout that `make setup` and
# `pip install '.[slurm]'` have prepared.
shared=${HARNESS_SHARED:-/shared/harness}
workers=${HARNESS_WORKERS:-partition=gpu,gpus=1,cpus=8,memory=64,minutes=240,workers=40}

export PATH="$shared/encoder-harness/.venv/bin:$PATH"
export HARNESS_RESULTS="$shared/results"
export HARNESS_CACHE="$shared/cache"
export HARNESS_DATA="$shared/data"

# Five minutes before the time limit the driver goes back to the queue. The workers go on meanwhile,
# and the next driver finds what they do.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1

harness run "$@" --executor "slurm:$workers" &
driver=$!
while true; do
  code=0
  wait "$driver" || code=$?
  kill -0 "$driver" 2>/dev/null || break
done
exit "$code"
