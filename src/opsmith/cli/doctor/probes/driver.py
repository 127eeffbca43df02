"""Probe: NVIDIA's driver starts and reports its GPUs."""

from __future__ import annotations

import os
from pathlib import Path

from ..._screen import size
from ..cuda_driver import NO_DEVICE, Driver, DriverError
from ..finding import Finding

_NVIDIA = "0x10de"
_DISPLAY = "0x03"


def driver() -> Finding:
    try:
        driver = Driver()
    except OSError as error:
        return _without_driver(str(error))
    except DriverError as error:
        if error.code == NO_DEVICE:
            return _without_gpu()
        return Finding("broken", str(error), fix="run nvidia-smi for details; reboot after an update of the driver")
    gpus = driver.gpus()
    if not gpus:
        return _without_gpu()
    listed = ", ".join(f"{gpu.name} ({gpu.arch}, {size(gpu.bytes)})" for gpu in gpus)
    return Finding("ok", f"for CUDA up to {driver.version}: {listed}", "initialised it")


def _without_driver(message: str) -> Finding:
    if Path("/proc/driver/nvidia/version").exists():
        return Finding(
            "missing",
            "the kernel has NVIDIA's driver, but there is no libcuda.so.1: a container without access to the GPU",
            fix="docker run --gpus all (with NVIDIA's container toolkit)",
        )
    if _on_the_bus():
        return Finding("missing", f"an NVIDIA GPU, but no driver: {message}", fix="apt-get install nvidia-driver")
    return Finding("missing", "no libcuda.so.1, and no NVIDIA GPU in this machine", fix="a machine with an NVIDIA GPU")


def _without_gpu() -> Finding:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return Finding("missing", f"no GPU with CUDA_VISIBLE_DEVICES={hidden!r}", fix="unset CUDA_VISIBLE_DEVICES")
    return Finding("missing", "the driver works, but reports no GPU")


def _on_the_bus() -> bool:
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            found = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if found[0] == _NVIDIA and found[1].startswith(_DISPLAY):
            return True
    return False
