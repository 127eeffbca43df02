"""A generated op's programs: each is traced, derived and prepared once for the kinds of arguments it serves."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import NotPointwiseError, NotRowwiseError, definition
from ..reference.modes import no_modes
from ..reference.signature import Argument, Kind, Signature, flatten
from ..reference.tensors import FULL, HALF, dtype_class
from . import levels
from .kinds import first_accepted
from .launch import Prepared
from .levels import Level, Saves, always_covered, least_saves, saves_of
from .specialise import RefusedByTorch, TensorKind, UnsupportedDtype, specialise
from .trace import Trace, is_static

_FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Arguments(NamedTuple):
    """The arguments of a level's operator by part. `inner`: those of the level below."""

    tensors: list[torch.Tensor | None]
    values: Sequence[Any]  # the op's own arguments
    inner: Arguments | None = None
    grads: int = 0
    kept: int = 0
    needs: Sequence[bool] = ()


class Compiler:
    """One pointwise or rowwise op: its traces, and its programs by the kinds of their arguments."""

    def __init__(self, name: str, function: Callable[..., Any], signature: Signature, rows: bool = False) -> None:
        self.name = name
        self.rows = rows
        self.function = function
        self.signature = signature
        self.base = name.partition("::")[2]
        self.origin = definition(function)
        self._static = [i for i, argument in enumerate(signature.arguments) if is_static(argument)]
        self._optional = [i for i, argument in enumerate(signature.arguments) if argument.type == "Tensor?"]
        self._traces: dict[Any, Trace] = {}
        self._levels: dict[Any, Level | None] = {}
        self._prepared: dict[Any, Prepared | None] = {}
        self._lock = threading.RLock()
        for argument in signature.arguments:
            if argument.kind in (Kind.TENSOR_LIST, Kind.OPTIONAL_TENSOR_LIST):
                what = f"{argument.name!r} is a list of tensors, and a kernel takes each tensor by its own name"
                raise (NotRowwiseError if rows else NotPointwiseError)(name, function, what, self.origin)
        self._find_saves()

    # --- the arguments of an operator ---------------------------------------------------------------------------

    def arguments(self, role: str, args: Sequence[Any]) -> Arguments:
        """`role`: see GeneratedCall."""
        if role == "backward":
            return self.backward_arguments(args)
        return self.second_arguments(args) if role == "second" else self.forward_arguments(args)

    def forward_arguments(self, args: Sequence[Any]) -> Arguments:
        return Arguments(flatten(self.signature.arguments, args), args)

    def backward_arguments(self, args: Sequence[Any]) -> Arguments:
        count = len(self.result_names)
        inner = self.forward_arguments(args[count : count + len(self.signature.arguments)])
        grads, kept = list(args[:count]), list(args[-1 - count : -1])
        return Arguments([*grads, *inner.tensors, *kept], inner.values, inner, count, count, args[-1])

    def second_arguments(self, args: Sequence[Any]) -> Arguments:
        inner = self.backward_arguments(args[1:-2])
        grads, kept = list(args[0]), list(args[-2])
        return Arguments([*grads, *inner.tensors, *kept], inner.values, inner, len(grads), len(kept), args[-1])

    @property
    def result_names(self) -> tuple[str, ...]:
        if self.signature.mutated:
            return tuple(f"new_{argument.name}" for argument in self.signature.mutated)
        return self.signature.result_names

    # --- levels -------------------------------------------------------------------------------------------------

    def prepared(self, arguments: Arguments) -> Prepared | None:
        """The program for a call, None where none can be generated (complex numbers)."""
        key = self._key(arguments)
        try:
            return self._prepared[key]
        except KeyError:
            pass
        with self._lock:
            level = self._level(arguments, key)
            self._prepared[key] = None if level is None else Prepared(level, level.program(), len(arguments.tensors))
            return self._prepared[key]

    def level(self, arguments: Arguments) -> Level | None:
        with self._lock:
            return self._level(arguments, self._key(arguments))

    def _key(self, arguments: Arguments) -> Any:
        if self.rows:
            kinds: Any = tuple([None if t is None else (t.dtype, t.ndim) for t in arguments.tensors])
        else:
            kinds = tuple([None if t is None else (t.dtype, t.ndim == 0) for t in arguments.tensors])
        needs: list[Any] = []
        inner: Arguments | None = arguments
        while inner is not None:
            needs += [inner.grads, inner.kept, tuple(inner.needs)]
            inner = inner.inner
        statics = tuple([arguments.values[i] for i in self._static]) if self._static else ()
        return kinds, _hashable(statics), tuple(needs), torch.get_default_dtype()

    def _level(self, arguments: Arguments, key: Any) -> Level | None:
        if key not in self._levels:
            try:
                with no_modes():
                    self._levels[key] = self._derived(arguments)
            except (UnsupportedDtype, RefusedByTorch):  # the reference runs, and raises torch's own error
                self._levels[key] = None
        return self._levels[key]

    def _derived(self, arguments: Arguments) -> Level | None:
        kinds = [
            None if t is None else TensorKind(t.dtype, t.ndim == 0, t.ndim if self.rows else 1)
            for t in arguments.tensors
        ]
        if arguments.inner is None:
            return self._forward(arguments.values, kinds)
        below = self._level(arguments.inner, self._key(arguments.inner))
        if below is None:
            return None
        name = f"{self.base}{'_backward' if arguments.inner.inner is None else '_backward_backward'}"
        kept = kinds[len(kinds) - arguments.kept :] if arguments.kept else []
        kept += [None] * (len(below.results) - len(kept))
        return levels.backward(below, name, kinds[: arguments.grads], kept, arguments.needs)

    def _forward(self, values: Sequence[Any], kinds: Sequence[TensorKind | None]) -> Level:
        specialised = specialise(self._trace(values, kinds), kinds)
        names = [argument.name for argument in self.signature.tensors]
        return levels.forward(f"{self.base}_forward", names, self.result_names, specialised, self.origin)

    def _trace(self, values: Sequence[Any], kinds: Sequence[TensorKind | None]) -> Trace:
        statics: dict[int, Any] = {i: values[i] for i in self._static}
        tensors = [i for i, argument in enumerate(self.signature.arguments) if argument.is_tensor]
        statics.update({i: None for i in self._optional if kinds[tensors.index(i)] is None})
        key = _hashable(tuple(statics.items()))
        if key not in self._traces:
            self._traces[key] = Trace(self.name, self.function, self.signature, statics, self.rows)
        return self._traces[key]

    def saved(self, tensors: Sequence[torch.Tensor | None]) -> Saves:
        """What a call with these tensors keeps for its backward."""
        return self.saves.get(dtype_class(tensors)) or Saves(frozenset(range(len(tensors))), frozenset())

    # --- when declared ------------------------------------------------------------------------------------------

    def _find_saves(self) -> None:
        """Traces the op for the choices of its static arguments that are known now, so that it is refused now if it
        must be; finds what calls save for their backward, by dtype class, and its passthrough gradients."""
        self.saves: dict[str, Saves] = {}
        self.passthrough: tuple[int | None, ...] | None = None
        choices = [self._choices(self.signature.arguments[i]) for i in self._static]
        if not all(choices):
            return
        every = [dict(zip(self._static, choice, strict=True)) for choice in itertools.product(*choices)]
        same_shape = True
        plain: list[Saves] = []
        least: list[Saves] = []
        for statics in every:
            values = [statics.get(i, 1) for i in range(len(self.signature.arguments))]
            level = self._float_level(values)
            if level is None:  # some tensors cannot be floating: every input is saved
                return
            plain.append(saves_of(level))
            least.append(least_saves(level, plain[-1]) if always_covered(level) else plain[-1])
            same_shape = same_shape and (self.rows or len(level.covers) == 1)
        complete = not self._optional and all(self.signature.arguments[i].type == "bool" for i in self._static)
        if not complete or not same_shape:
            return
        # In half types results are rounded, so inputs are saved; also if the function has several forms, one of
        # which might need inputs and another results.
        inputs = Saves(frozenset().union(*(saves.inputs for saves in plain)), frozenset())
        self.saves = {FULL: least[0] if len(least) == 1 else inputs, HALF: inputs}
        if len(every) == 1:
            assert level is not None
            self.passthrough = self._find_passthrough(values, level.kinds)

    @staticmethod
    def _choices(argument: Argument) -> list[Any]:
        if argument.type == "bool":
            return [False, True]
        return [argument.default] if argument.has_default else []

    def _float_level(self, values: Sequence[Any]) -> Level | None:
        """The forward on float32; None if it accepts only other dtypes (bool, integers) for some tensors, unless it is
        a row program, which often has integers for indices."""
        count = len(self.signature.tensors)
        self._trace(values, [TensorKind(torch.float32, False)] * count)  # what is wrong for every kind
        kinds, level = first_accepted(count, self.rows, lambda kinds: self._forward(values, kinds))
        return level if self.rows or all(kind.dtype is torch.float32 for kind in kinds) else None

    def _find_passthrough(
        self, values: Sequence[Any], kinds: Sequence[TensorKind | None]
    ) -> tuple[int | None, ...] | None:
        """Which gradients equal that of a result, as for x + 2. A cast may round in one dtype and not in another, so
        every dtype must agree."""
        found: set[tuple[int | None, ...]] = set()
        for dtype in _FLOATING:
            tried = [kind and (kind._replace(dtype=dtype) if kind.dtype.is_floating_point else kind) for kind in kinds]
            with contextlib.suppress(RefusedByTorch):
                found.add(levels.passthrough(self._forward(values, tried)))
            if len(found) != 1 or not any(place is not None for each in found for place in each):
                return None
        return found.pop()


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    return ("float", repr(value)) if isinstance(value, float) else (type(value), value)  # -0.0 is not 0.0, nor is 0
