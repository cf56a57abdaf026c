"""Every new checkpoint of a pretraining run, evaluated as it comes."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from importlib import import_module

    homes = {"Asked": "following", "Hearing": "following", "follow": "following"}
    homes |= {"Look": "looking", "look": "looking", "Watch": "state"}
    if name not in homes:
        raise AttributeError(name)
    return getattr(import_module(f"harness.watch.{homes[name]}"), name)
