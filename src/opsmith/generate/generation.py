"""What is generated for one op: the references of its operators, its kernels, its rules for vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels import GeneratedKernel
from ..kernels.kernel import DEFAULT
from ..operator.family import Family
from ..reference.forms import Plain
from ..reference.signature import Signature
from ..runtime.operator import Operator
from .call import GeneratedCall
from .compiler import Compiler
from .devices import DEVICES, EMULATED
from .expression import Form
from .reference import Generated, GeneratedFunctional, Pulled
from .source import example, texts
from .symbolic import SymbolicForm, has_floats
from .trace import compiled_in


class LoopGeneration:
    """What is generated for one op (operator.family.Generation)."""

    def __init__(self, name: str, function: Callable[..., Any], signature: Signature, rows: bool = False) -> None:
        self.compiler = Compiler(name, function, signature, rows)
        self.plain = Generated(function, signature, name, self.compiler)

    def functional(self, name: str) -> GeneratedFunctional:
        return GeneratedFunctional(self.plain, name)

    def backwards(self, source: Plain, name: str) -> tuple[Pulled, Pulled]:
        first = Pulled(source, name, self.compiler, "backward")
        return first, Pulled(first, f"{name}_backward", self.compiler, "second")

    def complete(self, family: Family, kernels: bool) -> None:
        if not family.inplace and has_floats(self.plain.signature):
            family.symbolic = SymbolicForm(family)
        for role, operator in self.operators(family).items():
            if role in ("forward", "backward", "second"):
                operator.derived_vmap = functools.partial(_by_broadcasting, self.compiler, role)
        if not kernels:
            return
        for device in DEVICES:
            for role, operator in self.operators(family).items():
                statics = compiled_in(operator.signature, self.compiler.rows)
                self._set_kernel(GeneratedCall(self.compiler, device, role, operator), statics)
        family.differentiable.saves_suffice = True
        family.differentiable.backward_replaced()

    def emulate(self, family: Family) -> None:
        for role, operator in self.operators(family).items():
            self._set_kernel(GeneratedCall(self.compiler, "cpu", role, operator, EMULATED), None)
        family.differentiable.backward_replaced()

    def operators(self, family: Family) -> dict[str, Operator]:
        """The operators that get generated kernels, by role."""
        assert family.backward.backward is not None
        found = {"second": family.backward.backward, "backward": family.backward, "forward": family.differentiable}
        if family.inplace:
            found["inplace"] = family.forward
        elif family.out is not None:
            found["out"] = family.out
        return found

    def _set_kernel(self, function: GeneratedCall, statics: tuple[bool, ...] | None) -> None:
        kernel = GeneratedKernel(DEFAULT, function.device_name, "strided", function, statics, checked=True)
        if function.role == "backward":
            kernel.saves, kernel.passthrough = self._saves, self.compiler.passthrough
        function.operator.set_kernel(kernel)

    @functools.cached_property
    def _saves(self) -> dict[str, tuple[str, ...]]:
        """By dtype class: the names of what is saved for the backward kernel."""
        compiler = self.compiler
        names = [argument.name for argument in compiler.signature.tensors]
        others = [argument.name for argument in compiler.signature.arguments if not argument.is_tensor]
        return {
            label: (
                *(names[slot] for slot in sorted(saves.inputs)),
                *others,
                *(compiler.result_names[index] for index in sorted(saves.results)),
            )
            for label, saves in compiler.saves.items()
        }

    def source(self, device: str, values: Sequence[Any] | None, backward: bool, dtype: torch.dtype) -> str:
        given = example(self.compiler, dtype) if values is None else values
        return "\n".join(texts(self.compiler, device, given, backward).values())


# --- vmap: the same kernel on tensors with one more dimension in front ------------------------------------------------


def _by_broadcasting(
    compiler: Compiler, role: str, operator: Operator, args: Sequence[Any], in_dims: Sequence[Any]
) -> Any:
    """The operator on batched arguments, with the batch as the first dimension of its results; NotImplemented if
    broadcasting cannot give vmap's result. A backward sums to the shapes of its inputs, so an input that is not batched
    is repeated for each element of the batch."""
    arguments = compiler.arguments(role, args)
    sums = arguments.inner is not None
    signature = operator.signature
    tensors, dims = signature.flatten(args), signature.flatten(in_dims)
    size = next(t.shape[dim] for t, dim in zip(tensors, dims, strict=True) if t is not None and dim is not None)
    ranks = [None if t is None else t.ndim - (dim is not None) for t, dim in zip(tensors, dims, strict=True)]
    pairs = [(tensor, rank, dim) for tensor, rank, dim in zip(tensors, ranks, dims, strict=True) if tensor is not None]
    # A tensor without dimensions does not take part in type promotion; batched it would.
    if len({tensor.dtype for tensor, _, _ in pairs}) > 1 and any(
        rank == 0 and dim is not None for _, rank, dim in pairs
    ):
        return NotImplemented
    missing, results_missing = [0] * len(tensors), [0] * len(operator.signature.results)
    if compiler.rows:
        found = _missing(compiler, role, signature, args, tensors, ranks)
        if found is None:
            return NotImplemented
        missing, results_missing = found
    full = max(rank + without for rank, without in zip(ranks, missing, strict=True) if rank is not None)
    arranged = [
        None if t is None else _arranged(t, dim, size, full - without, sums or compiler.rows)
        for t, dim, without in zip(tensors, dims, missing, strict=True)
    ]
    returned = operator.call_arranged(signature.unflatten(args, arranged))
    results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    if sums:
        asked = [arguments.grads + index for index, needed in enumerate(arguments.needs) if needed]
        ranks_asked = [tensors[index].ndim - (dims[index] is not None) for index in asked]
        results = [_squeezed(result, rank) for result, rank in zip(results, ranks_asked, strict=True)]
    elif any(result.ndim != full + 1 - without for result, without in zip(results, results_missing, strict=True)):
        return NotImplemented
    return results[0] if isinstance(returned, torch.Tensor) else type(returned)(results)


def _missing(
    compiler: Compiler,
    role: str,
    signature: Signature,
    args: Sequence[Any],
    tensors: Sequence[torch.Tensor | None],
    ranks: Sequence[int | None],
) -> tuple[list[int], list[int]] | None:
    """How many dimensions of the full shape each tensor and each result of a row program does not have: those along
    the row. None if the program depends on the number of dimensions."""
    single = [
        None if tensor is None or rank is None else tensor.new_empty((1,) * rank)
        for tensor, rank in zip(tensors, ranks, strict=True)
    ]
    level = compiler.level(compiler.arguments(role, signature.unflatten(args, single)))
    if level is None or level.rows is None or not level.any_rank:
        return None
    row = len(level.rows.dimensions)
    of_tensors = [row if form is Form.SQUEEZED else 0 for form in level.rows.forms]
    of_results = [row if level.result_form(index) is Form.SQUEEZED else 0 for index in range(len(level.results))]
    return of_tensors, of_results


def _arranged(tensor: torch.Tensor, dim: int | None, size: int, full: int, repeat: bool) -> torch.Tensor:
    if dim is None and not repeat:
        return tensor
    front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
    for _ in range(full + 1 - front.ndim):
        front = front.unsqueeze(1)
    return front


def _squeezed(result: torch.Tensor, rank: int) -> torch.Tensor:
    while result.ndim > rank + 1:
        result = result.squeeze(1)
    return result
