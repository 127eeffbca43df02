"""Every probe of doctor's, in the order of its report. Each module beside this one answers one or two of them."""

from __future__ import annotations

from ..finding import Probe


def _probe(name: str, title: str, function: str, *, fix: str, without: str) -> Probe:
    return Probe(name, title, f"{__name__}.{function}", fix, without)


PROBES = (
    _probe(
        "system",
        "System",
        "system:system",
        fix="use Linux on x86-64 or ARM64",
        without="nothing: Windows, macOS and ROCm are out of scope for now",
    ),
    _probe(
        "python",
        "Python",
        "system:python",
        fix="use Python 3.10 or newer",
        without="nothing: opsmith is written for Python 3.10 and newer",
    ),
    _probe(
        "torch",
        "PyTorch",
        "pytorch:torch",
        fix="pip install 'torch>=2.11'",
        without="`opsmith doctor` and `opsmith cache`, nothing else",
    ),
    _probe(
        "driver",
        "NVIDIA driver",
        "driver:driver",
        fix="install NVIDIA's driver; in a container: docker run --gpus all",
        without="every op on the CPU; NVRTC and nvcc compile without a GPU too",
    ),
    _probe(
        "gpu",
        "CUDA in torch",
        "pytorch:gpu",
        fix="pip install --force-reinstall torch (its Linux wheel is a CUDA build)",
        without="every op on the CPU",
    ),
    _probe(
        "nvrtc",
        "NVRTC",
        "nvidia:nvrtc",
        fix="pip install 'opsmith[cuda13]'",
        without="CPU kernels, Triton, and .cu files through nvcc; opsmith.cuda_source does not",
    ),
    _probe(
        "nvcc",
        "nvcc",
        "nvidia:nvcc",
        fix="apt-get install cuda-toolkit-13 (from NVIDIA's repository), then set CUDA_HOME",
        without="everything but .cu files in opsmith.extension; opsmith.cuda_source needs NVRTC alone",
    ),
    _probe(
        "cxx",
        "C++ compiler",
        "cxx:compiler",
        fix="apt-get install g++",
        without="every op, through the Python runtime; C++ kernels that are not compiled yet do not",
    ),
    _probe(
        "headers",
        "Python headers",
        "cxx:headers",
        fix="apt-get install python3-dev",
        without="everything of opsmith's own; Triton and torch.compile build against Python.h",
    ),
    _probe(
        "runtime",
        "opsmith runtime",
        "runtime:runtime",
        fix="python -m opsmith.runtime.build",
        without="everything, with the same results; calls go through Python and cost more",
    ),
    _probe(
        "cache",
        "Cache",
        "cache:cache",
        fix="set OPSMITH_CACHE_DIR to a directory of yours with free space",
        without="everything; what is compiled is kept for one process only",
    ),
    _probe(
        "triton",
        "Triton",
        "triton:triton",
        fix="pip install --upgrade triton",
        without="everything but kernels written in Triton",
    ),
    _probe(
        "numba",
        "Numba",
        "numba:numba",
        fix="pip install numba-cuda",
        without="everything but kernels written in Numba",
    ),
)

# What --require takes besides a probe's own name.
PATHS = {"cuda": ("driver", "gpu", "nvrtc")}
