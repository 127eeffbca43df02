"""Subject: the op under check as items see it, an Op or any operator of torch.ops with a reference."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch

from ..errors import OpsmithError
from ..operator.adopted import Adopted
from ..operator.op import Op
from ..operator.samples import Cost
from ..reference.signature import Argument, Signature, flatten
from .accuracy.doubling import InDouble, digits_are_lost
from .cases.acceptance import finite, taken, work
from .cases.case import Case, kind
from .cases.shrinking import shrunk
from .outcome import Failed, Skipped, Uncovered
from .reproduction import setup

Level = Literal["quick", "full"]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SMALL = 1 << 16
"""Elements of a case that anything may be tried on."""
LIGHT = 160
"""Operators that the reference calls in a case of a quick check."""
TOO_LARGE = "no sample is small enough, and none can be cut down to a call that the reference accepts: give one of up"
EMULATED = 1 << 12
"""The same where every thread of a kernel is emulated."""
SHRUNK = 1 << 12
"""Elements that a sample which is too large for an item is cut down to."""


class Subject:
    """An op, where it is to run, and how thoroughly it is looked at."""

    def __init__(
        self, op: Op | Adopted, device: str = "cpu", level: Level = "quick", seed: int = 0, emulated: bool = False
    ) -> None:
        self.op = op
        self.name = op.name
        self.device = device
        self.level = level
        self.seed = seed
        self.emulated = emulated
        self.signature: Signature = op.signature
        self.arguments = op.signature.arguments
        self.functional_arguments = tuple(replace(argument, mutated=False) for argument in self.arguments)
        """The arguments of `call`, which copies what the op changes in place."""
        self._cases: dict[torch.dtype, list[Case]] = {}
        self._shrunk: dict[tuple[torch.dtype, int, int], Case | None] = {}

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.level == "full"

    @property
    def place(self) -> str:
        """Where its kernels run: "cpu", "cuda" or "emulated"."""
        return "emulated" if self.emulated else self.device

    @property
    def inplace(self) -> bool:
        return bool(self.signature.mutated)

    @property
    def keeps_layout(self) -> bool:
        """Whether results are laid out after the inputs, as TensorIterator's are; else they are contiguous."""
        return isinstance(self.op, Op) and self.op._families.default.forward.reference.keeps_layout

    @property
    def overload(self) -> Any:
        """torch.ops.<namespace>.<name>.default."""
        return self.op._families.default.forward.overload if isinstance(self.op, Op) else self.op.overload

    @property
    def kernels(self) -> list[str]:
        """The names of the op's kernels for the device under check."""
        device = "cuda" if self.emulated else self.device
        return [kernel.name for kernel in self.op.kernels.get(device, {}).values()]

    @property
    def cost(self) -> Callable[..., Cost] | None:
        return self.op.cost

    # --- running it ------------------------------------------------------------------------------------------

    def call(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The op's results. One that works in place is given copies of what it changes, and returns those."""
        return listed(self.raw(self.copied(values)))

    def raw(self, values: Sequence[Any]) -> Any:
        """The op itself on these very tensors."""
        positional, keyword = self.arranged(values)
        return self.op(*positional, **keyword)

    def reference(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The same by plain PyTorch."""
        return listed(self.inline(self.copied(values)))

    def inline(self, values: Sequence[Any]) -> Any:
        """Plain PyTorch on these very tensors."""
        return self.op._inline_call(values)

    def arranged(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """All arguments in schema order as (positional, keyword-only)."""
        return self.signature.arranged(values)

    def copied(self, values: Sequence[Any]) -> list[Any]:
        """The values, with copies of those that the op changes in place."""
        return [v.clone() if a.mutated else v for a, v in zip(self.arguments, values, strict=True)]

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """What every item runs inside."""
        torch.manual_seed(self.seed)
        if not self.emulated:
            yield
            return
        from ..emulator import emulate

        with emulate(seed=self.seed):
            yield

    # --- what it is run on -----------------------------------------------------------------------------------

    def cases(self, dtype: torch.dtype = torch.float32, limit: int | None = None) -> list[Case]:
        """The op's samples in a dtype, with at most `limit` elements a tensor; none where it takes no such dtype.

        A larger sample is cut down, unless a small one is of its kind: of the same ranks and options."""
        if dtype not in self._cases:
            accepted = self._taken(dtype)
            self._cases[dtype] = accepted if self.full else self._light(accepted)
        most = min(limit or sys.maxsize, EMULATED if self.emulated else sys.maxsize)
        found = [case for case in self._cases[dtype] if case.numel <= most]
        kinds = {kind(case) for case in found if case.has_elements}
        for place, case in enumerate(self._cases[dtype]):
            if case.numel > most and kind(case) not in kinds and (smaller := self._smaller(dtype, place, most)):
                kinds.add(kind(case))
                found.append(smaller)
        return found

    def _smaller(self, dtype: torch.dtype, place: int, most: int) -> Case | None:
        """A sample cut down; with finite results, if there is such a call."""
        key = dtype, place, min(most, SHRUNK)
        if key not in self._shrunk:
            case = self._cases[dtype][place]
            smaller = shrunk(case, key[2], lambda each: taken(self, each) and finite(self, each))
            self._shrunk[key] = smaller or shrunk(case, key[2], lambda each: taken(self, each))
        return self._shrunk[key]

    def _light(self, cases: list[Case]) -> list[Case]:
        """Without those whose reference is a long loop: an item runs it dozens of times."""
        found = [case for case in cases if work(self, case) <= LIGHT]
        return found or cases

    def some_cases(self, dtype: torch.dtype = torch.float32, limit: int = SMALL, count: int = 3) -> list[Case]:
        """A few of them, unlike each other: the first, and others from along the list. All at level "full"."""
        found = self.cases(dtype, limit)
        if self.full or len(found) <= count:
            return found
        return [found[round(index * (len(found) - 1) / (count - 1))] for index in range(count)]

    def first_case(self, dtype: torch.dtype = torch.float32) -> Case:
        """A small case with elements in it."""
        for case in self.cases(dtype, SMALL):
            if case.has_elements:
                return case
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements, in {short(dtype)}")

    def differentiable_case(self) -> Case:
        """The same with a float64 tensor that takes a gradient, where the op takes float64; else float32."""
        for dtype in (torch.float64, torch.float32):
            for case in self.cases(dtype, SMALL):
                if case.has_elements and self.differentiates(case):
                    return case
        raise self.without_gradient()

    def differentiates(self, case: Case) -> bool:
        """Whether the reference's results depend on a floating input in a way autograd knows."""
        leaves = case.requiring()
        return any(result.requires_grad for result in self.reference(leaves.values))

    def differentiates_complex(self, case: Case) -> bool:
        """Whether they depend on complex numbers so."""
        names = [argument.name for argument, tensor in case.tensors() if tensor.is_complex()]
        if not names:
            return False
        leaves = case.requiring(names, complex_too=True)
        return any(result.requires_grad for result in self.reference(leaves.values))

    def loses_digits(self, case: Case) -> bool:
        """Whether the reference computes in float32 what it is given in float64: finite differences
        of such results give no gradient."""
        widely = InDouble()
        with widely:
            exact = self.reference(case.values)
        return widely.was_asked and digits_are_lost(self.reference(case.values), exact)

    def without_gradient(self) -> Skipped:
        """For items that find no gradient to look at."""
        if any(self.differentiates_complex(case) for case in self.cases(torch.float64, SMALL)):
            return Skipped("its gradients are of complex numbers, which gradcheck in the item 'gradients' is for")
        return Skipped("no sample has a result with a gradient")

    @cached_property
    def dtypes(self) -> list[torch.dtype]:
        """Those of DTYPES that the reference takes."""
        return [dtype for dtype in DTYPES if self.cases(dtype)]

    def _taken(self, dtype: torch.dtype) -> list[Case]:
        torch.manual_seed(self.seed)
        try:
            samples = self.op.samples_for(self.device, dtype)
        except (OpsmithError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if dtype is torch.float32:
                raise Failed(f"its samples for {self.device} raise {type(error).__name__}: {error}") from error
            return []
        cases = [self._case(index, sample, dtype) for index, sample in enumerate(samples)]
        return [case for case in cases if self.accepts(case)] if dtype is not torch.float32 else cases

    def accepts(self, case: Case) -> bool:
        """Whether the reference accepts a call on its own device."""
        try:
            self.reference(case.values)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return False
        return True

    def _case(self, index: int, sample: Any, dtype: torch.dtype) -> Case:
        values = self.signature.bind(sample.args, dict(sample.kwargs))
        names = ", ".join(argument.name for argument in self.arguments) + ("," if len(self.arguments) == 1 else "")
        lines = (
            f"torch.manual_seed({self.seed})",
            f"sample = op.samples_for({self.device!r}, {dtype})[{index}]",
            f"{names} = op.signature.bind(sample.args, dict(sample.kwargs))",
        )
        return Case(f"{sample.name or f'sample {index}'}, {short(dtype)}", self.arguments, tuple(values), lines)

    # --- a failure as Python ---------------------------------------------------------------------------------

    def reproduction(self, failed: Failed) -> str:
        """Lines to copy and run: they raise where the fault is there."""
        made = failed.case.lines if failed.case is not None else ()
        lines = [line for each in failed.lines for line in each.split("\n")]
        if self.emulated:
            lines = [f"with opsmith.emulate(seed={self.seed}):", *(f"    {line}" for line in lines)]
        return "\n".join([*self.setup(), *made, *lines]) if lines else ""

    def again(self, item: str) -> str:
        """The lines that run one item again, for what an op raised by itself."""
        where = "emulate=True" if self.emulated else f"device={self.device!r}"
        arguments = f"{where}, level={self.level!r}, seed={self.seed}, items=[{item!r}]"
        return "\n".join([*self.setup(), f"report = opsmith.check(op, {arguments})", "assert report.ok, report"])

    def setup(self) -> list[str]:
        """The lines that bind `op` and `reference`."""
        return setup(self.op)


def listed(returned: Any) -> list[torch.Tensor]:
    return list(returned) if isinstance(returned, (tuple, list)) else [] if returned is None else [returned]


def present(arguments: Sequence[Argument], values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among the values, without absent ones."""
    return [tensor for tensor in flatten(arguments, values) if tensor is not None]


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
