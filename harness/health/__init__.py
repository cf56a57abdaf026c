"""Checks of a machine: does it have what a run needs, and which command mends what it lacks."""

from harness.health.check import Check, State
from harness.health.hardware import check_hardware
from harness.health.places import Places, check_places
from harness.health.software import check_software

__all__ = ["Check", "Places", "State", "check_hardware", "check_places", "check_software"]
