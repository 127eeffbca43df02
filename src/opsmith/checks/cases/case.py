"""Case: the arguments of one call, with the Python code that makes them, so that a failure can be reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...reference.signature import Argument, Kind


@dataclass(frozen=True)
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
        """The single tensors among the arguments. Those of lists come by `every_tensor`."""
        for argument, value in zip(self.arguments, self.values, strict=True):
            if isinstance(value, torch.Tensor):
                yield argument, value

    def every_tensor(self) -> list[torch.Tensor]:
        found = []
        for argument, value in zip(self.arguments, self.values, strict=True):
            if argument.kind is Kind.VALUE or value is None:
                continue
            found += [each for each in ([value] if isinstance(value, torch.Tensor) else value) if each is not None]
        return found

    def floating(self) -> list[tuple[Argument, torch.Tensor]]:
        """The single tensors that may have a gradient."""
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
        """With another value for an argument. `code` is the expression that makes it, or whole lines of Python, from
        what the lines before have bound."""
        values = list(self.values)
        values[self._position(argument)] = value
        lines = [f"{argument} = {code}"] if "\n" not in code and not code.startswith(f"{argument} = ") else [code]
        return replace(self, values=tuple(values), lines=(*self.lines, *lines), name=name or self.name)

    def each_tensor(self, change: Callable[[torch.Tensor], torch.Tensor], code: str, name: str = "") -> Case:
        """With every tensor changed; `code` is the expression, with {} for the tensor."""
        case = self
        for argument, value in zip(self.arguments, self.values, strict=True):
            if isinstance(value, torch.Tensor):
                case = case.changed(argument.name, change(value), code.format(argument.name))
            elif argument.is_tensor and value is not None:
                changed = [None if each is None else change(each) for each in value]
                inner = f"[None if each is None else {code.format('each')} for each in {argument.name}]"
                case = case.changed(argument.name, changed, inner)
        return case.named(name or self.name)

    def requiring(self, names: Sequence[str] | None = None, complex_too: bool = False) -> Case:
        """With fresh leaves that require a gradient: every floating tensor, or those of the named arguments;
        `complex_too`: and every single tensor of complex numbers."""
        case = self
        for argument, value in zip(self.arguments, self.values, strict=True):
            if names is not None and argument.name not in names:
                continue
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or (complex_too and value.is_complex())):
                code = f"{argument.name}.detach().requires_grad_()"
                case = case.changed(argument.name, value.detach().requires_grad_(), code)
            elif argument.kind in (Kind.TENSOR_LIST, Kind.OPTIONAL_TENSOR_LIST) and value:
                case = case.changed(argument.name, [_leaf(each) for each in value], _LEAVES.format(argument.name))
        return case

    def leaves(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors that require a gradient, each with the expression that names it."""
        found = []
        for argument, value in zip(self.arguments, self.values, strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                found.append((argument.name, value))
            elif argument.is_tensor and isinstance(value, (list, tuple)):
                found += [
                    (f"{argument.name}[{index}]", each)
                    for index, each in enumerate(value)
                    if isinstance(each, torch.Tensor) and each.requires_grad
                ]
        return found

    def replaced(self, leaves: Sequence[torch.Tensor]) -> list[Any]:
        """The values with other tensors for its leaves, in the order of `leaves()`."""
        fresh = iter(leaves)
        return [
            next(fresh)
            if isinstance(value, torch.Tensor) and value.requires_grad
            else [next(fresh) if isinstance(each, torch.Tensor) and each.requires_grad else each for each in value]
            if argument.is_tensor and isinstance(value, (list, tuple))
            else value
            for argument, value in zip(self.arguments, self.values, strict=True)
        ]

    def call(self, function: str = "op") -> str:
        """'op(x, bias, scale=scale)': the call in Python. What the op changes in place is a copy."""
        return self._call(function, {})

    def function_of_leaves(self, function: str = "op") -> str:
        """'lambda x, bias: op(x, bias, scale)': the call as a function of its leaves, for torch's own checks."""
        parameters = [name.replace("[", "_").rstrip("]") for name, _ in self.leaves()]
        lists: dict[str, str] = {}
        for argument, value in zip(self.arguments, self.values, strict=True):
            if argument.is_tensor and isinstance(value, (list, tuple)):
                own = [f"{argument.name}_{index}" for index in range(len(value))]
                inner = [name if name in parameters else f"{argument.name}[{i}]" for i, name in enumerate(own)]
                lists[argument.name] = f"[{', '.join(inner)}]"
        return f"lambda {', '.join(parameters)}: {self._call(function, lists)}"

    def leaf_tuple(self) -> str:
        """'(x, bias)'"""
        names = [name for name, _ in self.leaves()]
        return f"({', '.join(names)}{',' if len(names) == 1 else ''})"

    def _call(self, function: str, instead: dict[str, str]) -> str:
        parts = []
        for argument in self.arguments:
            name = instead.get(argument.name, f"{argument.name}.clone()" if argument.mutated else argument.name)
            parts.append(f"{argument.name}={name}" if argument.keyword_only else name)
        return f"{function}({', '.join(parts)})"


def ranks(case: Case) -> tuple[Any, ...]:
    """Of each argument: the rank and dtype of its tensors, or whether it is absent."""
    found: list[Any] = []
    for argument, value in zip(case.arguments, case.values, strict=True):
        if isinstance(value, torch.Tensor):
            found.append((value.ndim, value.dtype))
        elif argument.is_tensor and value is not None:
            found.append(tuple(None if each is None else (each.ndim, each.dtype) for each in value))
        else:
            found.append(value is None)
    return tuple(found)


def kind(case: Case) -> tuple[Any, ...]:
    """What distinguishes kinds of calls: ranks, and options other than numbers."""
    options = [value for value in case.values if isinstance(value, (bool, str, torch.dtype))]
    return ranks(case), tuple(options)


_LEAVES = "[each if each is None or not each.is_floating_point() else each.detach().requires_grad_() for each in {}]"


def _leaf(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return tensor if tensor is None or not tensor.is_floating_point() else tensor.detach().requires_grad_()
