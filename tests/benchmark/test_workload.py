"""A workload: arguments copied past the cache, what they must cost, and the calls that are timed."""

from __future__ import annotations

import pytest
import torch

import opsmith
from opsmith.benchmark.contenders import contender
from opsmith.benchmark.workload import MOST_COPIES, Stage, Workload, call_for

from .ops_to_time import Fresh, cubed, halve_, scale_add

F = 4  # bytes of a float32


def workload(op: opsmith.Op, *args: object) -> Workload:
    return Workload(op, op.signature.bind(args, {}), "made")


def test_copies_are_enough_to_pass_the_cache_and_the_first_is_the_workloads_own(fresh: Fresh) -> None:
    made = workload(scale_add(fresh), torch.randn(100, 10), torch.randn(10))
    each = 2000 * F + 10 * F
    sets = made.copies(beyond=10 * each)
    assert len(sets) == 11 and sets[0] is made.values
    assert len({values[0].data_ptr() for values in sets}) == 11
    assert all(torch.equal(values[0], sets[0][0]) and values[2] == 2.0 for values in sets)


def test_copies_have_a_least_and_a_most(fresh: Fresh) -> None:
    made = workload(scale_add(fresh), torch.randn(100, 10), torch.randn(10))
    assert len(made.copies(beyond=1)) == 1
    assert len(made.copies(beyond=1 << 40)) == MOST_COPIES


def test_a_copy_is_laid_out_as_its_original(fresh: Fresh) -> None:
    sliced, expanded = torch.randn(64, 32)[1::2, ::3], torch.randn(1, 11).expand(32, 11)
    made = workload(scale_add(fresh), sliced, expanded)
    _, copy = made.copies(beyond=made.input_bytes + made.result_bytes)
    for given, made_again in zip((sliced, expanded), copy, strict=False):
        assert made_again.stride() == given.stride() and torch.equal(made_again, given)


def test_the_cost_of_a_pointwise_op_is_every_tensor_once(fresh: Fresh) -> None:
    made = workload(scale_add(fresh), torch.randn(100, 10), torch.randn(10))
    forward, backward, both = (made.cost(each) for each in ("forward", "backward", "both"))
    assert forward and backward and both
    assert forward.bytes == (1000 + 10 + 1000) * F
    # Its gradients need neither input: the gradient of the result is read, those of x and bias are written.
    assert backward.bytes == (1000 + 1000 + 10) * F
    assert both.bytes == forward.bytes + backward.bytes


def test_a_gradient_that_is_passed_through_costs_nothing() -> None:
    made = workload(opsmith.ops.add_two, torch.randn(100))
    forward, backward, both = (made.cost(each) for each in ("forward", "backward", "both"))
    assert forward and backward and both
    assert (forward.bytes, backward.bytes, both.bytes) == (200 * F, 0, 200 * F)


def test_what_is_expanded_counts_once(fresh: Fresh) -> None:
    made = workload(scale_add(fresh), torch.randn(100, 10), torch.randn(1, 10).expand(100, 10))
    assert made.input_bytes == (1000 + 10) * F


def test_a_declared_cost_is_taken_and_both_begins_with_it(fresh: Fresh) -> None:
    op = scale_add(fresh)
    op.register_cost(lambda x, bias, scale=2.0: opsmith.Cost(bytes=12345, flops=2 * x.numel()))
    made = workload(op, torch.randn(100, 10), torch.randn(10))
    backward = made.cost("backward")
    assert made.cost("forward") == opsmith.Cost(bytes=12345, flops=2000) and backward
    assert made.cost("both") == opsmith.Cost(bytes=12345 + backward.bytes)


def test_an_op_that_is_not_pointwise_has_no_cost_unless_declared(fresh: Fresh) -> None:
    op = cubed(fresh)
    made = workload(op, torch.randn(64))
    assert made.cost("forward") is None and made.cost("backward") is None
    op.register_cost(lambda x: opsmith.Cost(bytes=2 * x.nbytes))
    assert made.cost("forward") == opsmith.Cost(bytes=2 * 64 * F) and made.cost("backward") is None


def test_what_is_timed(fresh: Fresh) -> None:
    op = cubed(fresh)
    x = torch.tensor([2.0])
    function = contender(op, "opsmith", "cpu")
    forward, backward, both = (call_for(function, (x,), op.signature, each) for each in ("forward", "backward", "both"))
    assert forward().item() == 8 and not forward().requires_grad
    for call in (backward, both):
        first, again = call()[0], call()[0]
        assert first.shape == x.shape and torch.equal(first, again), "the same gradient every time"
    assert not x.requires_grad and x.grad is None


def test_contenders_share_arguments_and_gradients_and_results_do_not(fresh: Fresh) -> None:
    """Two results of one layout have a gradient each: one that is read twice would be in the cache."""
    seen: list[list[int]] = []

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    def watched(grads: tuple[torch.Tensor, ...], x: torch.Tensor, *, needs: object) -> torch.Tensor:
        seen.append([x.data_ptr(), *(grad.data_ptr() for grad in grads)])
        return grads[0] * 2 + grads[1] * 3

    op = opsmith.op(fresh("both"))(both)
    op.register_backward("cpu", watched)
    stage = Stage(workload(op, torch.randn(1 << 21)), "backward")  # 24 MiB a set: three of them
    for _ in range(2):
        stage.sampler(contender(op, "opsmith", "cpu"))
    places = {tuple(each) for each in seen}
    assert len(places) == 3, "three sets, the same for both contenders"
    assert len({address for each in places for address in each}) == 9


def test_an_in_place_op_leaves_the_workload_as_it_is(fresh: Fresh) -> None:
    op = halve_(fresh)
    x = torch.full((3,), 8.0)
    for name in ("opsmith", "eager"):
        function = contender(op, name, "cpu")
        forward = call_for(function, (x,), op.signature, "forward")
        assert forward().tolist() == [4.0] * 3 and forward().tolist() == [2.0] * 3
        (grad,) = call_for(function, (x,), op.signature, "both")()
        assert grad.shape == x.shape
    assert x.tolist() == [8.0] * 3


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, True), (torch.int64, False)])
def test_whether_there_is_a_gradient(fresh: Fresh, dtype: torch.dtype, expected: bool) -> None:
    assert workload(cubed(fresh), torch.ones(4).to(dtype)).has_gradient is expected
