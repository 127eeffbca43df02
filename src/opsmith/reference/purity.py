"""Whether a reference is a pure function: does it write to its inputs, does it draw random numbers?"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import SourceLine, UndeclaredMutationError, definition
from .tensors import storage_of


class Audit(TorchDispatchMode):
    """Observes a reference's first run. A write to an undeclared input raises before it happens; a random draw is
    recorded. Both name the author's line."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Asking dynamo to skip this would import it: over a second, in an op's first call.

    def __init__(self, name: str, function: Callable[..., Any], inputs: list[tuple[str, torch.Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.random: tuple[str, SourceLine] | None = None
        self._name = name
        self._function = function
        self._owners = {storage_of(tensor): argument for argument, tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.random is None and _draws(func, args, kwargs or {}):
            self.random = func._schema.name, self._line()
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.is_write and isinstance(value, torch.Tensor) and storage_of(value) in self._owners:
                line = self._line()
                culprit = f"the reference {self._function.__name__} ({line.place}, {func._schema.name})"
                raise UndeclaredMutationError(self._name, self._owners[storage_of(value)], culprit, line)
        return func(*args, **(kwargs or {}))

    def _line(self) -> SourceLine:
        """The innermost line of the author's file on the stack, else the one that defines the function."""
        defined = definition(self._function)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and defined is not None and frame.f_code.co_filename != defined.file:
            frame = frame.f_back
        if frame is None or defined is None:
            return defined or SourceLine(self._function.__name__, 0, "")
        return SourceLine.at(defined.file, frame.f_lineno)


def _draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator draws random numbers in this call: attention without dropout does not, though it can."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    given = {each.name: each.default_value for each in func._schema.arguments if each.has_default_value()}
    given |= {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
    chances = [given.get("dropout_p"), given.get("dropout"), given.get("p") if "dropout" in func._schema.name else None]
    trains = [given.get("train"), given.get("training")]
    return not (any(type(chance) in (int, float) and chance == 0 for chance in chances) or False in trains)


class RandomState:
    """The state of every random generator that work on some tensors could draw from."""

    def __init__(self, tensors: Iterable[torch.Tensor | None]) -> None:
        self._generators = [torch.default_generator]
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            indices = {tensor.device.index for tensor in tensors if tensor is not None and tensor.is_cuda}
            self._generators += [torch.cuda.default_generators[index] for index in sorted(indices)]
        self._states = [_state(generator) for generator in self._generators]

    def has_changed(self) -> bool:
        now = (_state(generator) for generator in self._generators)
        return any(not torch.equal(state, then) for state, then in zip(now, self._states, strict=True))

    def restore(self) -> None:
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


def draws_random_numbers(call: Callable[[], object], tensors: Iterable[torch.Tensor | None]) -> bool:
    """Whether a call draws from a generator. Its state is restored."""
    state = RandomState(tensors)
    call()
    changed = state.has_changed()
    state.restore()
    return changed


_reading = threading.Lock()


def _state(generator: torch.Generator) -> torch.Tensor:
    """One thread at a time, or torch can deadlock: it allocates the tensor while it holds the generator's mutex. If
    that triggers garbage collection it releases the GIL, and a thread that takes the GIL then waits for the mutex
    forever."""
    with _reading:
        return generator.get_state()


def _after_fork() -> None:
    global _reading
    _reading = threading.Lock()  # its owner is not in the child


os.register_at_fork(after_in_child=_after_fork)
