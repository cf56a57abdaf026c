"""The process that trains, started by `run_training`: `python -m harness.training FOLDER RANK`."""

import sys

from harness.training.training import exit_process, run_training_process

if __name__ == "__main__":
    exit_process(run_training_process(*sys.argv[1:]))
