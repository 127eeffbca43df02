"""Every probe of doctor, in the order of its report. Each module beside this one has some of them."""

from __future__ import annotations

from ..finding import Probe

_FUNCTIONS = {
    "system": ("System", "host:system"),
    "python": ("Python", "host:python"),
    "torch": ("PyTorch", "pytorch:torch"),
    "driver": ("NVIDIA driver", "driver:driver"),
    "gpu": ("CUDA in torch", "pytorch:gpu"),
    "nvrtc": ("NVRTC", "compilers:nvrtc"),
    "nvcc": ("nvcc", "compilers:nvcc"),
    "cxx": ("C++ compiler", "compilers:compiler"),
    "headers": ("Python headers", "compilers:headers"),
    "runtime": ("opsmith runtime", "runtime:runtime"),
    "cache": ("Cache", "host:cache"),
    "triton": ("Triton", "languages:triton"),
    "numba": ("Numba", "languages:numba"),
}
_FIX = {
    "system": "use Linux on x86-64 or ARM64",
    "python": "use Python 3.10 or newer",
    "torch": "pip install 'torch>=2.11'",
    "driver": "install NVIDIA's driver; in a container: docker run --gpus all",
    "gpu": "pip install --force-reinstall torch (its Linux wheel is a CUDA build)",
    "nvrtc": "pip install 'opsmith[cuda13]'",
    "nvcc": "apt-get install cuda-toolkit-13 (from NVIDIA's repository), then set CUDA_HOME",
    "cxx": "apt-get install g++",
    "headers": "apt-get install python3-dev",
    "runtime": "python -m opsmith.runtime.build",
    "cache": "set OPSMITH_CACHE_DIR to a directory that you own, with free space",
    "triton": "pip install --upgrade triton",
    "numba": "pip install numba-cuda",
}
_WITHOUT = {
    "system": "nothing works: Windows, macOS and ROCm are out of scope for now",
    "python": "nothing works: opsmith needs Python 3.10 or newer",
    "torch": "`opsmith doctor`, `opsmith lint` and `opsmith cache` work, nothing else",
    "driver": "every op works on the CPU; NVRTC and nvcc compile without a GPU too",
    "gpu": "every op works on the CPU",
    "nvrtc": "prebuilt and CPU kernels, Triton, and .cu files through nvcc work; opsmith.cuda_source compiles nothing",
    "nvcc": "everything but .cu files in opsmith.extension works; opsmith.cuda_source needs only NVRTC",
    "cxx": "every op works; a kernel that is not prebuilt or compiled yet is left to the reference",
    "headers": "opsmith works; Triton and torch.compile build against Python.h",
    "runtime": "everything works, with the same results; calls go through Python and cost more",
    "cache": "everything works; compiled code is kept for one process only",
    "triton": "everything but kernels written in Triton works",
    "numba": "everything but kernels written in Numba works",
}
PROBES = tuple(
    Probe(name, title, f"{__name__}.{function}", _FIX[name], _WITHOUT[name])
    for name, (title, function) in _FUNCTIONS.items()
)

# What --require takes besides a probe's own name.
PATHS = {"cuda": ("driver", "gpu", "nvrtc")}
