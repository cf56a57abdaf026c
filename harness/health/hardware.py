"""Processors: cores, GPUs, the ways of computing attention on them, precision worth using.

This is the one check that imports torch, because only torch knows which GPUs it can use.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.data import human_size
from harness.health.check import Check
from harness.machine import cores, cpu_flags, cpu_model, nvidia_driver
from harness.provenance import version

FAST_BF16 = ("avx512_bf16", "amx_bf16")


def check_hardware() -> Iterator[Check]:
    """Processor, GPUs, attention and precision."""
    yield Check(name="processor", detail=f"{cpu_model()}, {cores()} cores to use")
    yield precision()
    if find_spec("torch") is None:
        return
    import torch

    yield from gpus(torch)
    yield attention(on_gpu=torch.cuda.is_available())


def precision() -> Check:
    """Whether bfloat16 is worth asking for on this processor."""
    fast = [flag for flag in FAST_BF16 if flag in cpu_flags()]
    if fast:
        detail = f"bfloat16 in hardware ({', '.join(fast)}): --dtype bfloat16 is fast; scores differ a little"
    else:
        detail = "no bfloat16 in hardware: --dtype float32 is the faster one"
    return Check(name="CPU precision", detail=detail)


def gpus(torch: Any) -> Iterator[Check]:
    """Each GPU torch can use; a driver without one is worth a warning."""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(number)
            told = (facts.name, human_size(facts.total_memory), f"compute {facts.major}.{facts.minor}")
            built = f"CUDA {torch.version.cuda}, driver {nvidia_driver() or 'unknown'}"
            yield Check(name=f"GPU cuda:{number}", detail=f"{', '.join(told)}, {built}")
    elif Path("/proc/driver/nvidia/version").exists():
        detail = f"driver {nvidia_driver()}, but torch {torch.__version__} cannot use it"
        yield Check(name="GPU", state="warning", detail=detail, fix="nvidia-smi")
    else:
        yield Check(name="GPU", detail="none: runs on the CPU")


def attention(*, on_gpu: bool) -> Check:
    """The ways attention can be computed here; sdpa always can."""
    if not on_gpu:
        return Check(name="attention", detail="sdpa")
    ways = ["sdpa"]
    ways += [way for way in ("varlen", "flex_attention") if find_spec(f"torch.nn.attention.{way}")]
    if flash := version("flash-attn"):
        return Check(name="attention", detail=", ".join([*ways, f"flash-attn {flash}"]))
    return Check(name="attention", detail=f"{', '.join(ways)}; flash-attn is not installed")
