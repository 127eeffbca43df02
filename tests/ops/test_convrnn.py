"""convrnn beyond its samples: every width and tap count, what stays local, what is asked for, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import fresh_process
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import opsmith
from opsmith import Sample
from opsmith.benchmark.cpu import pinned
from opsmith.checks import compare
from opsmith.checks.items.huge import growth
from opsmith.ops import convrnn

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def drawn(
    batch: int, steps: int, units: int, taps: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    x, kernel, hidden = (
        torch.randn(shape, dtype=torch.float64).to(device, dtype)
        for shape in ((batch, steps, units), (1, 1, taps), (batch, units))
    )
    return x, kernel / kernel.abs().sum(), hidden  # one that magnifies rounding could not be compared


def failures(*args: object) -> list[str]:
    return [f"{each.what}: {each.message}" for each in compare(convrnn, Sample(args=args)) if not each]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(0, 7),
    st.sampled_from(["tanh", "relu", "none"]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_any_shape_on_a_cpu(
    batch: int, steps: int, units: int, radius: int, activation: str, dtype: torch.dtype
) -> None:
    assert failures(*drawn(batch, steps, units, 2 * radius + 1, dtype=dtype), activation) == []


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["tanh", "relu", "none"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("batch", "steps", "units", "taps"),
    [(5, 40, 64, 3), (3, 7, 61, 5), (2, 33, 32, 15), (700, 5, 96, 3), (3, 9, 300, 9), (2, 6, 5000, 15), (2, 5, 257, 1)],
)
def test_any_shape_on_a_gpu(batch: int, steps: int, units: int, taps: int, dtype: torch.dtype, activation: str) -> None:
    assert failures(*drawn(batch, steps, units, taps, "cuda", dtype), activation) == []


@pytest.mark.parametrize("device", DEVICES)
def test_many_steps_stay_with_the_reference(device: str) -> None:
    assert failures(*drawn(3, 1000 if device == "cuda" else 200, 64, 3, device)) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("units", "taps"), [(40, 17), (20000, 3)])
def test_what_no_gpu_kernel_takes_is_right_all_the_same(device: str, units: int, taps: int) -> None:
    assert failures(*drawn(2, 3, units, taps, device)) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("units", [64, 300])
@pytest.mark.parametrize("activation", ["tanh", "relu", "none"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_no_further_than_the_taps_reach(
    device: str, units: int, activation: str, value: float
) -> None:
    x, kernel, hidden = drawn(2, 4, units, 3, device)
    x[0, 1, 10] = value
    x[1, 0, 0] = value
    x[1, 0, units - 1] = value
    leaves = [tensor.requires_grad_() for tensor in (x, kernel, hidden)]
    found, expected = (function(*leaves, activation) for function in (convrnn, convrnn.reference))
    torch.testing.assert_close(found, expected, equal_nan=True)
    mine, theirs = (torch.autograd.grad(result[..., 20:].sum(), leaves) for result in (found, expected))
    torch.testing.assert_close(mine, theirs, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wanted", ["x", "kernel", "hidden"])
def test_one_gradient_alone_is_the_same_as_among_all(device: str, wanted: str) -> None:
    tensors = dict(zip(("x", "kernel", "hidden"), drawn(3, 8, 64, 3, device), strict=True))
    every = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}
    convrnn(*every.values()).square().sum().backward()
    tensors[wanted].requires_grad_()
    convrnn(*tensors.values()).square().sum().backward()
    assert torch.equal(tensors[wanted].grad, every[wanted].grad)
    assert all(tensor.grad is None for name, tensor in tensors.items() if name != wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_the_kernel_has_the_same_bits_in_every_run(device: str) -> None:
    x, kernel, hidden = drawn(600, 12, 64, 3, device)
    kernel.requires_grad_()
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 2, 1):
            torch.set_num_threads(count)
            (gradient,) = torch.autograd.grad(convrnn(x, kernel, hidden).sum(), kernel)
            found.append(gradient)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], each) for each in found)


@pytest.mark.parametrize("device", DEVICES)
def test_second_gradients(device: str) -> None:
    args = tuple(tensor.requires_grad_() for tensor in drawn(2, 3, 5, 3, device, torch.float64))
    assert torch.autograd.gradcheck(convrnn, args)
    assert torch.autograd.gradgradcheck(convrnn, args)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_whole(device: str) -> None:
    x, kernel, hidden = drawn(2, 5, 16, 3, device)
    kernel.requires_grad_()
    compiled = torch.compile(lambda *args: convrnn(*args) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, kernel, hidden), convrnn(x, kernel, hidden) * 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, kernel, hidden: (x[0], kernel, hidden), "x has"),
        (lambda x, kernel, hidden: (x, kernel[..., :2], hidden), "odd"),
        (lambda x, kernel, hidden: (x, kernel[0], hidden), "kernel has shape"),
        (lambda x, kernel, hidden: (x, kernel, hidden[:, 1:]), "hidden has shape"),
        (lambda x, kernel, hidden: (x, kernel.double(), hidden), "kernel"),
        (lambda x, kernel, hidden: (x, kernel, hidden, "sigmoid"), "activation is 'sigmoid'"),
    ],
)
def test_wrong_arguments_raise_an_error_with_a_message(device: str, change: object, words: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
        convrnn(*change(*drawn(2, 3, 8, 3, device)))  # type: ignore[operator]


@pytest.mark.gpu
def test_captured_and_replayed_on_changed_inputs() -> None:
    x, kernel, hidden = (tensor.requires_grad_() for tensor in drawn(4, 16, 64, 3, "cuda"))
    convrnn.prepare(x, kernel, hidden)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        torch.autograd.grad(convrnn(x, kernel, hidden).sum(), kernel)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        output = convrnn(x, kernel, hidden)
        (gradient,) = torch.autograd.grad(output.sum(), kernel)
    for _ in range(3):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        again = convrnn(x, kernel, hidden)
        assert torch.equal(output, again)
        assert torch.equal(gradient, torch.autograd.grad(again.sum(), kernel)[0])


@pytest.mark.gpu
def test_two_streams_at_once_do_not_disturb_each_other() -> None:
    args = [tuple(tensor.requires_grad_() for tensor in drawn(600, 32, 64, 3, "cuda")) for _ in range(2)]
    alone = [torch.autograd.grad(convrnn(*each).sum(), each[1])[0] for each in args]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    for _ in range(20):
        found = []
        for stream, each in zip(streams, args, strict=True):
            with torch.cuda.stream(stream):
                found.append(torch.autograd.grad(convrnn(*each).sum(), each[1])[0])
        torch.cuda.synchronize()
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, alone, strict=True))


@pytest.mark.gpu
def test_nothing_of_a_tensors_size_is_allocated_beside_results_and_gradients() -> None:
    x, kernel, hidden = (tensor.requires_grad_() for tensor in drawn(256, 128, 64, 3, "cuda"))
    grad = torch.randn_like(x)
    convrnn(x, kernel, hidden).backward(grad)
    x.grad = kernel.grad = hidden.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    convrnn(x, kernel, hidden).backward(grad)
    peak = torch.cuda.max_memory_allocated() - before
    assert peak < 2 * x.nbytes + 2 * hidden.nbytes + 65536


def test_more_sequences_than_groups_on_a_cpu() -> None:
    """The kernel's gradient is summed by groups: of two or three sequences here, and the same with any threads."""
    arguments = drawn(2500, 3, 8, 3)
    assert failures(*arguments, "tanh") == []
    found = []
    for threads in (1, 2):
        with pinned(threads):
            leaves = [each.clone().requires_grad_() for each in arguments]
            found.append(torch.autograd.grad(convrnn(*leaves).square().sum(), leaves[1])[0])
    assert torch.equal(*found)


def test_a_backward_on_a_cpu_takes_no_memory_of_the_batchs_size() -> None:
    x, kernel, hidden = (each.requires_grad_() for each in drawn(1 << 22, 1, 1, 1))
    result, grad = convrnn(x, kernel, hidden), torch.ones(1 << 22, 1, 1)
    needed = x.nbytes + hidden.nbytes
    assert growth(lambda: torch.autograd.grad(result, (x, kernel, hidden), grad)) < 1.25 * needed


def test_the_module_carries_its_state_on() -> None:
    module, x = opsmith.nn.ConvRNN(5), torch.randn(3, 10, 24)
    whole = module(x)
    first = module(x[:, :4])
    torch.testing.assert_close(torch.cat([first, module(x[:, 4:], first[:, -1])], 1), whole)
    with pytest.raises(ValueError, match="odd"):
        opsmith.nn.ConvRNN(4)
    with pytest.raises(ValueError, match="activation"):
        opsmith.nn.ConvRNN(3, "gelu")


WITHOUT_A_COMPILER = """
import warnings
import torch
import opsmith
from opsmith.errors import ReferenceRunsWarning

x, kernel, hidden = torch.randn(2, 3, 8), torch.randn(1, 1, 3, requires_grad=True), torch.randn(2, 8)
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(2):
        y = opsmith.ops.convrnn(x, kernel, hidden)
    y.sum().backward()
outcome = [str(each.message) for each in met if issubclass(each.category, ReferenceRunsWarning)]
assert len(outcome) == 2, outcome  # the forward, then the backward; each once
assert "apt-get install g++" in outcome[0] and "opsmith::convrnn" in outcome[0], outcome
torch.testing.assert_close(y, opsmith.ops.convrnn.reference(x, kernel, hidden))
assert kernel.grad is not None
"""


def test_without_a_compiler_the_reference_runs_and_says_so_once(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CXX": "no-such-compiler",
        "OPSMITH_CACHE_DIR": str(tmp_path),
        "OPSMITH_RUNTIME": "python",
    }
    fresh_process.run(["-c", WITHOUT_A_COMPILER], check=True, env=environment)
