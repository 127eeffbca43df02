"""Case: the arguments of one call, with the Python code that makes them, so that a failure can be reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...reference.signature import Argument, flatten
from .. import values as call_values
from ..outcome import Failed


@dataclass(frozen=True, eq=False)
class Case:
    """`values` are the op's arguments in schema order. `lines` bind each of them to its name."""

    name: str
    arguments: tuple[Argument, ...]
    values: tuple[Any, ...]
    lines: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[self._position(name)]

    def _position(self, name: str) -> int:
        return [argument.name for argument in self.arguments].index(name)

    def tensors(self) -> Iterator[tuple[Argument, torch.Tensor]]:
        """The tensor arguments, without the tensors in lists (see `every_tensor`)."""
        for argument, value in zip(self.arguments, self.values, strict=True):
            if isinstance(value, torch.Tensor):
                yield argument, value

    def every_tensor(self) -> list[torch.Tensor]:
        return call_values.present(self.arguments, self.values)

    def named_tensors(self) -> list[tuple[str, Argument, torch.Tensor]]:
        """Every tensor with the expression that names it, and its argument."""
        return call_values.named_tensors(self.arguments, self.values)

    def floating(self) -> list[tuple[Argument, torch.Tensor]]:
        """The tensor arguments that may have a gradient."""
        return [(argument, tensor) for argument, tensor in self.tensors() if tensor.is_floating_point()]

    @property
    def numel(self) -> int:
        """Of the largest tensor."""
        return max((tensor.numel() for tensor in self.every_tensor()), default=0)

    @property
    def has_elements(self) -> bool:
        """Whether no tensor is empty."""
        return all(tensor.numel() for tensor in self.every_tensor())

    @property
    def is_finite(self) -> bool:
        return all(bool(tensor.isfinite().all()) for tensor in self.every_tensor())

    @property
    def dtype(self) -> torch.dtype:
        """Of the first floating tensor."""
        return next((t.dtype for t in self.every_tensor() if t.is_floating_point()), torch.float32)

    def named(self, name: str) -> Case:
        return replace(self, name=name)

    def changed(self, argument: str, value: Any, code: str, name: str = "") -> Case:
        """With another value for an argument. `code` is the expression, or the lines of Python, that compute it from
        the names bound so far."""
        values = list(self.values)
        values[self._position(argument)] = value
        line = f"{argument} = {code}" if "\n" not in code and not code.startswith(f"{argument} = ") else code
        return replace(self, values=tuple(values), lines=(*self.lines, line), name=name or self.name)

    def each_tensor(self, change: Callable[[torch.Tensor], torch.Tensor], code: str, name: str = "") -> Case:
        """With every tensor changed; `code` is the expression, with {} for the tensor."""
        return self.each_named(lambda own, tensor: (change(tensor), code.format(own))).named(name or self.name)

    def each_named(self, change: Callable[[str, torch.Tensor], tuple[torch.Tensor, str] | None]) -> Case:
        """With tensors changed: `change` takes the expression that names a tensor, and the tensor; it returns another
        tensor and its expression, or None for no change."""
        case = self
        for argument, value in zip(self.arguments, self.values, strict=True):
            named = call_values.named_tensors([argument], [value])
            found = {name: made for name, _, tensor in named if (made := change(name, tensor)) is not None}
            if isinstance(value, torch.Tensor) and found:
                case = case.changed(argument.name, *found[argument.name])
            elif found:
                names = [f"{argument.name}[{index}]" for index in range(len(value))]
                pairs = [
                    found.get(own, (each, "None" if each is None else own))
                    for own, each in zip(names, value, strict=True)
                ]
                code = f"[{', '.join(code for _, code in pairs)}]"
                case = case.changed(argument.name, [tensor for tensor, _ in pairs], code)
        return case

    def requiring(self, complex_too: bool = False) -> Case:
        """With fresh leaves that require a gradient in place of floating tensors, and of complex ones if asked for."""
        return self.with_leaves(lambda tensor: tensor.is_floating_point() or (complex_too and tensor.is_complex()))

    def with_leaves(self, takes: Callable[[torch.Tensor], bool]) -> Case:
        """With fresh leaves in place of the tensors for which `takes` is True."""

        def leaf(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, str] | None:
            return (tensor.detach().requires_grad_(), f"{name}.detach().requires_grad_()") if takes(tensor) else None

        return self.each_named(leaf)

    def leaves(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors that require a gradient, each with the expression that names it."""
        return [(name, tensor) for name, _, tensor in self.named_tensors() if tensor.requires_grad]

    def replaced(self, leaves: Sequence[torch.Tensor]) -> list[Any]:
        """The values with other tensors for its leaves, in the order of `leaves()`."""
        fresh = iter(leaves)
        return call_values.mapped(self.arguments, self.values, lambda t: next(fresh) if t.requires_grad else t)

    def failed(self, message: str, lines: Sequence[str] = ()) -> Failed:
        """The exception to raise: this call shows a fault."""
        return Failed(f"{self.name}: {message}", self, lines)

    def call(self, function: str = "op", instead: Mapping[str, str] | None = None) -> str:
        """'op(x, bias, scale=scale)': the call in Python, with copies of what the op changes in place. `instead`: other
        expressions for arguments."""
        parts = []
        for argument in self.arguments:
            own = f"{argument.name}.clone()" if argument.mutated else argument.name
            name = (instead or {}).get(argument.name, own)
            parts.append(f"{argument.name}={name}" if argument.keyword_only else name)
        return f"{function}({', '.join(parts)})"

    def function_of_leaves(self) -> str:
        """'lambda x, bias: op(x, bias, scale)': the call as a function of its leaves, for torch's own checks."""
        parameters = {name: name.replace("[", "_").rstrip("]") for name, _ in self.leaves()}
        lists = {}
        for argument, value in zip(self.arguments, self.values, strict=True):
            if argument.is_tensor and isinstance(value, (list, tuple)):
                names = [f"{argument.name}[{index}]" for index in range(len(value))]
                lists[argument.name] = f"[{', '.join(parameters.get(name, name) for name in names)}]"
        return f"lambda {', '.join(parameters.values())}: {self.call(instead=lists)}"

    def leaf_tuple(self) -> str:
        """'(x, bias)'"""
        names = [name for name, _ in self.leaves()]
        return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def ranks(case: Case) -> tuple[Any, ...]:
    """The rank and dtype of each tensor, the lengths of lists, and which arguments are absent."""
    tensors = [None if t is None else (t.ndim, t.dtype) for t in flatten(case.arguments, case.values)]
    counts = [
        len(value) if argument.is_tensor and isinstance(value, (list, tuple)) else value is None
        for argument, value in zip(case.arguments, case.values, strict=True)
    ]
    return *tensors, *counts


def kind(case: Case) -> tuple[Any, ...]:
    """What distinguishes kinds of calls: ranks, and options other than numbers."""
    options = [value for value in case.values if isinstance(value, (bool, str, torch.dtype))]
    return ranks(case), tuple(options)
