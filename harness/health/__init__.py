"""Checks of a machine: does it have what a run needs, and which command mends what it lacks."""

from harness.health.check import Check, State
from harness.health.hardware import hardware
from harness.health.places import places
from harness.health.software import software

__all__ = ["Check", "State", "hardware", "places", "software"]
