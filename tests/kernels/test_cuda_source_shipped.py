"""Every CUDA source that opsmith ships compiles for every architecture, without a GPU; and polynomial's inline one.

Sources are found, not listed: a module under opsmith.ops that holds a CudaSource. Its instances are those it has asked
for when it is imported; where an op spells them at a call, its module names those to try in INSTANCES.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import fresh_process
import pytest
import torch

import opsmith
from opsmith import errors
from opsmith.checks import compare
from opsmith.kernels.cuda_source import CudaSource
from opsmith.toolchain import compile_shared_library, find_nvrtc, load_library

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")  # the oldest, those with new instructions, the newest
polynomial = opsmith.ops.polynomial


@functools.cache
def sources() -> dict[str, tuple[CudaSource, Sequence[str]]]:
    """{module: (its source, the instances it uses)}."""
    found: dict[str, tuple[CudaSource, Sequence[str]]] = {}
    for each in pkgutil.walk_packages(opsmith.ops.__path__, "opsmith.ops."):
        try:
            module: ModuleType = importlib.import_module(each.name)
        except ImportError as error:
            if (error.name or "").split(".")[0] not in ("triton", "numba"):
                raise
            continue
        for name, value in vars(module).items():
            if isinstance(value, CudaSource) and all(value is not known for known, _ in found.values()):
                spelled = [*value.instances, *getattr(module, "INSTANCES", ())]
                found[f"{each.name}.{name}"] = value, list(dict.fromkeys(spelled))
    return found


def test_sources_are_found() -> None:
    assert "opsmith.ops.polynomial.cuda_string.cu" in sources()


def test_every_template_of_a_source_has_an_instance_to_try() -> None:
    for name, (source, instances) in sources().items():
        templates = {each for each, text in source._current().found.kernels.items() if text.template is not None}
        tried = {each.partition("<")[0] for each in instances}
        assert templates <= tried, f"{name}: name instances of {templates - tried} in INSTANCES of its module"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_source_compiles_without_a_gpu(arch: str) -> None:
    try:
        find_nvrtc()
    except errors.NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    for source, instances in sources().values():
        compiled = [*source.compile(arch).attributes.values()]
        compiled += [source[spelling].compile(arch).attributes for spelling in instances]
        assert all(attributes.registers > 0 for attributes in compiled)


# --- polynomial as an inline string ---------------------------------------------------------------------------------


def test_the_inline_kernel_costs_nothing_until_it_is_picked() -> None:
    code = """
import sys, torch, opsmith
opsmith.ops.polynomial(torch.ones(3), *torch.ones(4).unbind())
assert "opsmith.ops.polynomial.cuda_string" not in sys.modules
assert "opsmith.kernels.cuda_source" not in sys.modules
assert "cuda_string" in opsmith.ops.polynomial.kernels["cuda"]
"""
    fresh_process.run(["-c", code], check=True)


def layouts() -> dict[str, torch.Tensor]:
    return {
        "contiguous": torch.randn(4, 6),
        "transposed": torch.randn(6, 4).t(),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "sliced": torch.randn(40, 27)[::3, 1::2],
        "sliced and transposed": torch.randn(40, 27)[::3, 1::2].t(),
        "one row": torch.randn(3, 5)[:1],
        "0-dim": torch.tensor(1.5),
        "empty": torch.randn(3, 0, 2).transpose(0, 2),
    }


@pytest.mark.parametrize("name", layouts())
def test_the_layout_the_inline_kernel_returns_is_the_ops(name: str) -> None:
    """Its result is torch.empty_like(x): what the op promises of every layout it takes."""
    module = importlib.import_module("opsmith.ops.polynomial.cuda_string")
    x, coefficients = layouts()[name], list(torch.randn(4).unbind())
    with polynomial.using("cuda_string"):
        variant = polynomial._families.in_use()
    expected = variant.forward.expected([x, *coefficients])
    like = torch.empty_like(x)
    assert like.numel() == 0 or _strides(like) == _strides(expected)
    grad = torch.randn_like(x)
    for given in (grad, torch.ones(()).expand(x.shape)):
        if module._alike(given, x):
            arguments = [given, x, *coefficients, None, [True] * 5]
            expected_grad = variant.backward.expected(arguments)[0]
            assert like.numel() == 0 or _strides(like) == _strides(expected_grad), given.stride()
    assert module._alike(torch.randn_like(like), like)


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


ON_HOST = """
#include <cuda_on_host.h>
inline Dim3 blockDim;
template <class T> T __shfl_down_sync(unsigned int mask, T value, int delta) {{
  return __shfl_down_sync(mask, value, delta, 32);
}}
{text}
#define EXPORTED extern "C" __attribute__((visibility("default"))) void
template <class T> void run_forward(const T** p, T* y, long long count, long long blocks, bool aligned) {{
  const long long grid[] = {{blocks, 1}};
  blockDim = {{256, 1, 1}}, gridDim = {{static_cast<unsigned>(blocks), 1, 1}};
  on_host::launch(grid, 256, [=] {{ forward<T>(p[0], p[1], p[2], p[3], p[4], y, count, aligned); }});
}}
template <class T>
void run_backward(const T** p, T* grad_x, T* sums, long long count, long long blocks, bool aligned) {{
  const long long grid[] = {{blocks, 1}};
  blockDim = {{256, 1, 1}}, gridDim = {{static_cast<unsigned>(blocks), 1, 1}};
  on_host::launch(grid, 256, [=] {{ backward<T>(p[0], p[1], p[2], p[3], p[4], grad_x, sums, count, aligned); }});
}}
EXPORTED forward_float(const float** p, float* y, long long n, long long b, bool a) {{ run_forward(p, y, n, b, a); }}
EXPORTED forward_double(const double** p, double* y, long long n, long long b, bool a) {{ run_forward(p, y, n, b, a); }}
EXPORTED backward_float(const float** p, float* g, float* s, long long n, long long b, bool a) {{
  run_backward(p, g, s, n, b, a);
}}
EXPORTED backward_double(const double** p, double* g, double* s, long long n, long long b, bool a) {{
  run_backward(p, g, s, n, b, a);
}}
"""


@functools.cache
def on_host() -> Any:
    """polynomial's kernels compiled for the CPU, a thread after the other up to each barrier."""
    module = importlib.import_module("opsmith.ops.polynomial.cuda_string")
    text = re.sub(r"#include <cuda_\w+\.h>", "", module.cu._current().text)
    here = Path(__file__).parents[1] / "generate"
    path = compile_shared_library(
        "polynomial_on_host", text=ON_HOST.format(text=text), abi="plain", include_dirs=[here],
        extra_cflags=["-O1", "-Wno-unknown-pragmas"],
    )  # fmt: skip
    return load_library(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (7, 1), (1024, 1), (3001, 2), (3001, 5)])
@pytest.mark.parametrize("aligned", [True, False])
def test_the_inline_kernels_arithmetic(dtype: torch.dtype, count: int, blocks: int, aligned: bool) -> None:
    x, *coefficients = (each.requires_grad_() for each in (torch.randn(count, dtype=dtype), *torch.randn(4).to(dtype)))
    grad = torch.randn(count, dtype=dtype)
    name = {torch.float32: "float", torch.float64: "double"}[dtype]

    def pointers(*tensors: torch.Tensor) -> Any:
        return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))

    def run(function: str, inputs: Any, *outputs: torch.Tensor | None) -> None:
        addresses = [ctypes.c_void_p(None if each is None else each.data_ptr()) for each in outputs]
        numbers = ctypes.c_longlong(count), ctypes.c_longlong(blocks), ctypes.c_bool(aligned)
        getattr(on_host(), f"{function}_{name}")(inputs, *addresses, *numbers)

    def check(sums: torch.Tensor) -> None:
        """Within what adding some thousand numbers may round off."""
        terms = torch.stack([grad.double() * x.detach().double() ** power for power in (3, 2, 1, 0)])
        error = (sums.sum(0).double() - terms.sum(1)).abs()
        assert bool((error <= 16 * torch.finfo(dtype).eps * terms.abs().sum(1)).all())

    y = torch.full((count,), torch.nan, dtype=dtype)
    run("forward", pointers(x, *coefficients), y)
    expected = polynomial.reference(x, *coefficients)
    torch.testing.assert_close(y, expected.detach())
    grad_x, sums = torch.full_like(y, torch.nan), torch.full((blocks, 4), torch.nan, dtype=dtype)
    run("backward", pointers(grad, x, *coefficients[:3]), grad_x, sums)
    (of_x,) = torch.autograd.grad(expected, [x], grad)
    torch.testing.assert_close(grad_x, of_x)
    check(sums)
    run("backward", pointers(grad, x, *coefficients[:3]), None, sums.fill_(torch.nan))
    check(sums)
    run("backward", pointers(grad, x, *coefficients[:3]), grad_x.fill_(torch.nan), None)
    torch.testing.assert_close(grad_x, of_x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_inline_kernel_gives_the_references_results(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("opsmith.ops.polynomial.cuda_string")
    ran: list[str] = []
    for given in polynomial._families.registered.values():
        if given.name == "cuda_string":  # imported already, or not: in either case this is what it finds
            noted = _noted(getattr(module, given.direction), given.direction, ran)
            monkeypatch.setitem(given.function.__dict__, "function", noted)
    with polynomial.using("cuda_string"):
        compared = [each for sample in polynomial.samples_for("cuda", dtype) for each in compare(polynomial, sample)]
        images = torch.randn(2, 3, 8, 8, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
        coefficients = torch.randn(4, device="cuda", dtype=dtype).unbind()
        compared += compare(polynomial, opsmith.Sample(args=(images, *coefficients), name="channels last"))
        unaligned = torch.randn(1003, device="cuda", dtype=dtype)[1:]
        compared += compare(polynomial, opsmith.Sample(args=(unaligned, *coefficients), name="unaligned"))
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert {"forward", "backward", "forward not taken"} <= set(ran)


def _noted(function: Any, name: str, ran: list[str]) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        ran.append(name if returned is not NotImplemented else f"{name} not taken")
        return returned

    return noted


@pytest.mark.gpu
def test_the_inline_kernels_gradients_are_the_same_in_every_run() -> None:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    coefficients = [torch.randn((), device="cuda", requires_grad=True) for _ in range(4)]
    grad = torch.randn(1 << 20, device="cuda")

    def gradients() -> tuple[torch.Tensor, ...]:
        with polynomial.using("cuda_string"):
            return torch.autograd.grad(polynomial(x, *coefficients), [x, *coefficients], grad)

    first = gradients()
    assert all(torch.equal(a, b) for _ in range(5) for a, b in zip(first, gradients(), strict=True))
    with polynomial.using("cuda_string"):
        (of_b,) = torch.autograd.grad(polynomial(x.detach(), *coefficients), [coefficients[1]], grad)
    assert torch.equal(of_b, first[2]), "also where nothing else is needed"


@pytest.mark.gpu
def test_the_inline_kernel_counts_past_32_bits() -> None:
    count = 2**31 + 12345
    if torch.cuda.mem_get_info()[0] < 5 * 2 * count:
        pytest.skip("less than 22 GB of GPU memory are free")
    x = torch.zeros(count, device="cuda", dtype=torch.bfloat16)
    x[-3:] = 2.0
    a, b, c, d = (torch.tensor(v, device="cuda", dtype=torch.bfloat16, requires_grad=True) for v in (1.0, 0, -1, 0.5))
    with polynomial.using("cuda_string"):
        y = polynomial(x, a, b, c, d)
        assert y[-4:].tolist() == [0.5, 6.5, 6.5, 6.5] and y[0].item() == 0.5
        grad = torch.zeros_like(y)
        grad[-2:] = 1.0
        (of_a,) = torch.autograd.grad(y, [a], grad)
    assert of_a.item() == 16.0
