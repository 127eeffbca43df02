"""Workload: an op on arguments of one size, dtype and layout. Stage: what its contenders share when they are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..operator.op import Op
from ..operator.samples import Cost
from ..reference.tensors import copied_as_laid_out, dtype_class, on_meta
from . import cpu, gpu
from .contenders import Function
from .timing import CallSampler, Sampler

DIRECTIONS = ("forward", "backward", "both")
MOST_COPIES = 64


@dataclass(frozen=True, eq=False)
class Workload:
    """`values` are the op's arguments in schema order."""

    op: Op
    values: tuple[Any, ...]
    name: str

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [tensor for tensor in self.op.signature.flatten(self.values) if tensor is not None]

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    @property
    def dtype(self) -> torch.dtype:
        return next((t.dtype for t in self.tensors if t.is_floating_point()), self.tensors[0].dtype)

    @property
    def elements(self) -> int:
        """Of the largest tensor."""
        return max(tensor.numel() for tensor in self.tensors)

    @property
    def input_bytes(self) -> int:
        """Memory of the inputs; expanded elements count once."""
        return sum(_held(tensor) for tensor in self.tensors)

    @cached_property
    def has_gradient(self) -> bool:
        """Whether a gradient flows through the reference, from a floating result to a floating input."""
        if not any(t.is_floating_point() for t in self.tensors) or not any(r.is_floating_point() for r in self.results):
            return False
        signature, reference = self.op.signature, self.op._inline_call
        try:
            return bool(_Recorded(reference, on_meta(signature, self.values), signature).results())
        except Exception:  # the reference depends on values
            return bool(_Recorded(reference, self.values, signature).results())

    @property
    def is_complex(self) -> bool:
        return any(tensor.is_complex() for tensor in (*self.tensors, *self.results))

    @cached_property
    def results(self) -> list[torch.Tensor]:
        """On meta: their shapes and dtypes."""
        operator = self.op._families.default.differentiable
        try:
            returned = operator.fake(*on_meta(self.op.signature, self.values))
        except Exception:  # shapes that depend on values
            with torch.no_grad():
                returned = operator.call_arranged(self.values)
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        return [result.to("meta") for result in results]

    @property
    def result_bytes(self) -> int:
        return sum(result.numel() * result.element_size() for result in self.results)

    def copies(self, beyond: int) -> list[tuple[Any, ...]]:
        """Sets of arguments that exceed `beyond` bytes together, at most MOST_COPIES; the first is its own."""
        wanted = min(MOST_COPIES, 1 + beyond // max(1, self.input_bytes + self.result_bytes))
        return [self.values, *(self.copied() for _ in range(wanted - 1))]

    def copied(self) -> tuple[Any, ...]:
        return self._with(copied_as_laid_out)

    def halved(self) -> Workload:
        """The same with other numbers: floating ones halved, which keeps signs, zeros and order."""

        def half(tensor: torch.Tensor) -> torch.Tensor:
            copy = copied_as_laid_out(tensor)
            if tensor.is_floating_point() or tensor.is_complex():
                held = copy.untyped_storage().nbytes() // copy.element_size() - copy.storage_offset()
                copy.as_strided((held,), (1,)).div_(2)  # a repeated element is halved once
            return copy

        return Workload(self.op, self._with(half), self.name)

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, ...]:
        signature = self.op.signature
        fresh = [None if tensor is None else change(tensor) for tensor in signature.flatten(self.values)]
        return tuple(signature.unflatten(self.values, fresh))

    def cost(self, direction: str) -> Cost | None:
        """The least cost: what the author declares; without that, for a generated op, each tensor once.

        A backward reads the gradients of the results and the tensors that it saves, and writes the gradients of the
        inputs. It is known for generated ops, and where the author declares both a cost and what is saved."""
        if direction == "forward" and self.op.cost is not None:
            positional, keyword = self.op.signature.arranged(self.values)
            return self.op.cost(*positional, **keyword)
        generated = self.op._families.default.differentiable.saves_suffice
        if not generated and (self.op.cost is None or self._saved_names() is None):
            return None
        declared = self.cost("forward") if direction == "both" and self.op.cost is not None else None
        forward = declared.bytes if declared else self.input_bytes + self.result_bytes
        computed = sum(_held(tensor) for tensor in self._differentiated())
        grads = sum(each.numel() * each.element_size() for each in self.results if each.is_floating_point())
        backward = grads + self._read_by_backward() + computed if computed else 0
        return Cost(bytes={"forward": forward, "backward": backward, "both": forward + backward}[direction])

    def _differentiated(self) -> list[torch.Tensor]:
        """The inputs whose gradients are computed; x + 2 has a passthrough gradient."""
        flat = self.op.signature.flatten(self.values)
        places = self.op._families.default.differentiable.passthrough(self.device.type) or (None,) * len(flat)
        found = []
        for tensor, place in zip(flat, places, strict=True):
            if tensor is None or not tensor.is_floating_point():
                continue
            result = None if place is None else self.results[place]
            if result is None or (result.shape, result.dtype) != (tensor.shape, tensor.dtype):
                found.append(tensor)
        return found

    def _saved_names(self) -> tuple[str, ...] | None:
        operator = self.op._families.default.differentiable
        return operator.saved_names(self.device.type, dtype_class(self.tensors))

    def _read_by_backward(self) -> int:
        """Bytes of the inputs and results that the op's backward saves."""
        names = self._saved_names()
        if names is None:
            return self.input_bytes
        held = dict(zip((a.name for a in self.op.signature.arguments), self.values, strict=True))
        kept = [held[name] for name in names if isinstance(held.get(name), torch.Tensor)]
        results = [r for n, r in zip(self.op.signature.result_names, self.results, strict=False) if n in names]
        return sum(_held(t) for t in kept) + sum(r.numel() * r.element_size() for r in results)


def _held(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements; a dimension whose stride is zero counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or size == 0 else 1
    return count * tensor.element_size()


class Gradients:
    """Random gradients of results, drawn once for each result and layout: all contenders read the same memory."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[Any, ...], torch.Tensor] = {}

    def of(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        keys = [(place, each.shape, each.stride(), each.dtype) for place, each in enumerate(results)]
        for key, result in zip(keys, results, strict=True):
            if key not in self._drawn:
                self._drawn[key] = torch.randn_like(result)
        return [self._drawn[key] for key in keys]


def call_for(
    function: Callable[[Sequence[Any]], Any],
    values: Sequence[Any],
    signature: Any,
    direction: str,
    gradients: Gradients | None = None,
) -> Callable[[], Any]:
    """The call to time, on one set of arguments. The forward records no gradient; the backward runs on a recorded
    forward; both is one step of training. An in-place op, which cannot write to a leaf, gets a copy where
    gradients are recorded: with "both", the copy is timed too, for every contender alike."""
    if direction == "forward":
        plain = signature.unflatten(values, [None if t is None else t.detach() for t in signature.flatten(values)])
        # copied, so that the workload's values do not change
        own = _with_copies(plain, _mutated(signature), copied_as_laid_out)

        def forward() -> Any:
            with torch.no_grad():
                return function(own)

        return forward
    recorded = _Recorded(function, values, signature)
    first = recorded.results()
    grads = (gradients or Gradients()).of(first)
    if direction == "backward":
        return lambda: torch.autograd.grad(first, recorded.leaves, grads, retain_graph=True, allow_unused=True)
    return lambda: torch.autograd.grad(recorded.results(), recorded.leaves, grads, allow_unused=True)


class _Recorded:
    """Calls that autograd records, with these values as leaves."""

    def __init__(self, function: Callable[[Sequence[Any]], Any], values: Sequence[Any], signature: Any) -> None:
        flat = [None if tensor is None else tensor.detach() for tensor in signature.flatten(values)]
        self.leaves = [tensor.requires_grad_() for tensor in flat if tensor is not None and tensor.is_floating_point()]
        self._function = function
        self._values = signature.unflatten(values, flat)
        self._mutated = _mutated(signature)

    def results(self) -> list[torch.Tensor]:
        """The results that have a gradient."""
        given = _with_copies(self._values, self._mutated, torch.clone) if self._mutated else self._values
        returned = self._function(given)
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        return [result for result in results if result.requires_grad]


def _mutated(signature: Any) -> list[int]:
    return [place for place, argument in enumerate(signature.arguments) if argument.mutated]


def _with_copies(values: Sequence[Any], places: Sequence[int], copy: Callable[[Any], Any]) -> list[Any]:
    return [copy(value) if place in places else value for place, value in enumerate(values)]


class Stage:
    """What all contenders share on one workload: arguments, gradients of results and, on a GPU, memory for results."""

    def __init__(self, workload: Workload, direction: str) -> None:
        self._workload, self._direction = workload, direction
        self._on_gpu = workload.device.type == "cuda"
        self._sets = workload.copies(gpu.rotated_bytes() if self._on_gpu else cpu.CACHE_BYTES)
        self._gradients = [Gradients() for _ in self._sets]
        self._places = gpu.Places() if self._on_gpu else None

    def sampler(self, function: Function) -> Sampler:
        signature = self._workload.op.signature

        def call(number: int) -> Callable[[], Any]:
            return call_for(function, self._sets[number], signature, self._direction, self._gradients[number])

        if self._on_gpu:
            return gpu.sampler(call, len(self._sets), self._places)
        return CallSampler([call(number) for number in range(len(self._sets))])
