"""Subject: the op under check as items see it, an Op or any operator of torch.ops with a reference."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch

from ..errors import OpsmithError
from ..operator.adopted import Adopted
from ..operator.op import Op
from ..operator.samples import Sample
from . import values as call_values
from .accuracy.evaluate import Named, evaluate
from .accuracy.truth import Function
from .accuracy.variants import InDouble, digits_are_lost
from .cases.acceptance import finite, taken, work
from .cases.case import Case, kind
from .cases.shrinking import shrunk
from .outcome import Failed, Skipped, Uncovered
from .reproduction import setup
from .values import listed as listed
from .values import present as present

Level = Literal["quick", "full"]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SMALL = 1 << 16
"""The most elements of a case that every item can use."""
EMULATED = 1 << 12
"""The same where every thread of a kernel is emulated."""
SHRUNK = 1 << 12
"""The most elements of a case that is cut down from a sample which is too large."""
LIGHT = 160
"""The most operators that the reference calls in a case of a quick check."""
TOO_LARGE = "no sample is small enough, and none can be cut down to a call that the reference accepts: give one of up"


class Subject:
    """An op, the device to check it on, and the level of the check."""

    def __init__(
        self, op: Op | Adopted, device: str = "cpu", level: Level = "quick", seed: int = 0, emulated: bool = False
    ) -> None:
        self.op = op
        self.name = op.name
        self.device = device
        self.level = level
        self.seed = seed
        self.emulated = emulated
        self.signature = op.signature
        self.arguments = op.signature.arguments
        self.functional_arguments = tuple(replace(argument, mutated=False) for argument in self.arguments)
        """The arguments of `call`, which copies what the op changes in place."""
        self.known_gradients: WeakKeyDictionary[Case, bool] = WeakKeyDictionary()
        """Whether a case has gradients: what `has_gradients` of items/_cases.py has found."""
        self._cases: dict[torch.dtype, list[Case]] = {}
        self._shrunk: dict[tuple[torch.dtype, int, int], Case | None] = {}

    # --- The op -----------------------------------------------------------------------------------------------

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
        """Whether results are laid out after the inputs: by TensorIterator's rule, and in a row program with the rows
        contiguous; else they are contiguous."""
        return isinstance(self.op, Op) and self.op._families.default.forward.reference.keeps_layout

    @property
    def elementwise(self) -> bool:
        """Whether the op is declared with opsmith.pointwise."""
        return isinstance(self.op, Op) and self.op._families.default.forward.reference.elementwise

    @property
    def overload(self) -> Any:
        """torch.ops.<namespace>.<name>.default."""
        return self.op._families.default.forward.overload if isinstance(self.op, Op) else self.op.overload

    @property
    def kernels(self) -> list[str]:
        """The names of the op's kernels for the device under check."""
        device = "cuda" if self.emulated else self.device
        return [kernel.name for kernel in self.op.kernels.get(device, {}).values()]

    # --- Calls ------------------------------------------------------------------------------------------------

    def call(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The op's results. An in-place op changes copies and returns them."""
        return listed(self.raw(self.copied(values)))

    def raw(self, values: Sequence[Any]) -> Any:
        """The op on these tensors, without copies."""
        return call_values.call(self.op, values)

    def reference(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The reference's results, on copies of what the op changes in place."""
        return listed(self.inline(self.copied(values)))

    def inline(self, values: Sequence[Any]) -> Any:
        """The reference on these tensors, without copies."""
        return self.op._inline_call(values)

    def evaluate(
        self, case: Case, gradients: bool = True, function: Function | None = None, **options: Any
    ) -> list[Named]:
        """Named results and gradients of a call of the op, or of another function. `options` are those of
        accuracy/evaluate.py."""
        return evaluate(self.arguments, function or self.raw, case.values, gradients=gradients, **options)

    def copied(self, values: Sequence[Any]) -> list[Any]:
        """The values, with copies of those that the op changes in place."""
        return call_values.copied(self.arguments, values)

    def environment(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which every item runs."""
        torch.manual_seed(self.seed)
        if not self.emulated:
            return contextlib.nullcontext()
        from ..emulator import emulate

        return emulate(seed=self.seed)

    # --- Cases ------------------------------------------------------------------------------------------------

    def cases(self, dtype: torch.dtype = torch.float32, limit: int | None = None) -> list[Case]:
        """The op's samples in a dtype, with at most `limit` elements per tensor; none if it does not take the dtype.

        A larger sample is cut down, unless there is a small one of the same kind: of the same ranks and options."""
        if dtype not in self._cases:
            accepted = self._accepted(dtype)
            light = [case for case in accepted if self.full or work(self, case) <= LIGHT]
            self._cases[dtype] = light or accepted  # an item runs the reference dozens of times
        most = min(limit or sys.maxsize, EMULATED if self.emulated else sys.maxsize)
        found = [case for case in self._cases[dtype] if case.numel <= most]
        kinds = {kind(case) for case in found if case.has_elements}
        for place, case in enumerate(self._cases[dtype]):
            if case.numel > most and kind(case) not in kinds and (smaller := self._smaller(dtype, place, most)):
                kinds.add(kind(case))
                found.append(smaller)
        return found

    def _smaller(self, dtype: torch.dtype, place: int, most: int) -> Case | None:
        """A sample cut down; to a call with finite results, if there is one."""
        key = dtype, place, min(most, SHRUNK)
        if key not in self._shrunk:
            case = self._cases[dtype][place]
            smaller = shrunk(case, key[2], lambda each: taken(self, each) and finite(self, each))
            self._shrunk[key] = smaller or shrunk(case, key[2], lambda each: taken(self, each))
        return self._shrunk[key]

    def some_cases(self, dtype: torch.dtype = torch.float32, limit: int = SMALL, count: int = 3) -> list[Case]:
        """A few cases, evenly spaced in the list, the first included. All at level "full"."""
        found = self.cases(dtype, limit)
        if self.full or len(found) <= count:
            return found
        return [found[round(index * (len(found) - 1) / (count - 1))] for index in range(count)]

    def first_case(self, dtype: torch.dtype = torch.float32) -> Case:
        """The first small case without empty tensors."""
        for case in self.cases(dtype, SMALL):
            if case.has_elements:
                return case
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements, in {short(dtype)}")

    def differentiates(self, case: Case) -> bool:
        """Whether autograd finds a gradient of the reference's results for a floating input."""
        return any(result.requires_grad for result in self.reference(case.requiring().values))

    def differentiates_complex(self, case: Case) -> bool:
        """Whether it finds one for a complex input."""
        if not any(tensor.is_complex() for tensor in case.every_tensor()):
            return False
        return any(result.requires_grad for result in self.reference(case.with_leaves(torch.is_complex).values))

    def loses_digits(self, case: Case) -> bool:
        """Whether the reference computes in float32 on float64 inputs: finite differences of such results are not a
        gradient."""
        in_double = InDouble()
        with in_double:
            exact = self.reference(case.values)
        return in_double.casts_to_single and digits_are_lost(self.reference(case.values), exact)

    def without_gradient(self) -> Skipped:
        """For items that find no gradient to check."""
        if any(self.differentiates_complex(case) for case in self.cases(torch.float64, SMALL)):
            return Skipped("its gradients are of complex numbers, which gradcheck in the item 'gradients' is for")
        return Skipped("no sample has a result with a gradient")

    @cached_property
    def dtypes(self) -> list[torch.dtype]:
        """Those of DTYPES that the reference takes."""
        return [dtype for dtype in DTYPES if self.cases(dtype)]

    @property
    def wide_and_narrow(self) -> list[torch.dtype]:
        """The first of `dtypes`, and the first half type."""
        wide = [dtype for dtype in self.dtypes if dtype.itemsize >= 4]
        return [*wide[:1], *[dtype for dtype in self.dtypes if dtype.itemsize < 4][:1]]

    def _accepted(self, dtype: torch.dtype) -> list[Case]:
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
        return [case for case in cases if dtype is torch.float32 or self.accepts(case)]

    def accepts(self, case: Case) -> bool:
        """Whether the reference accepts a call on the device of the call."""
        try:
            self.reference(case.values)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return False
        return True

    def _case(self, index: int, sample: Sample, dtype: torch.dtype) -> Case:
        values = self.signature.bind(sample.args, dict(sample.kwargs))
        names = ", ".join(argument.name for argument in self.arguments) + ("," if len(self.arguments) == 1 else "")
        lines = (
            f"torch.manual_seed({self.seed})",
            f"sample = op.samples_for({self.device!r}, {dtype})[{index}]",
            f"{names} = op.signature.bind(sample.args, dict(sample.kwargs))",
        )
        return Case(f"{sample.name or f'sample {index}'}, {short(dtype)}", self.arguments, tuple(values), lines)

    # --- Reproductions ----------------------------------------------------------------------------------------

    def reproduction(self, failed: Failed) -> str:
        """Lines to copy and run, which raise if the fault is present."""
        made = failed.case.lines if failed.case is not None else ()
        lines = [line for each in failed.lines for line in each.split("\n")]
        if self.emulated:
            lines = [f"with opsmith.emulate(seed={self.seed}):", *(f"    {line}" for line in lines)]
        return "\n".join([*setup(self.op), *made, *lines]) if failed.lines else ""

    def again(self, item: str) -> str:
        """The lines that run one item again, for an exception that an item did not expect."""
        where = "emulate=True" if self.emulated else f"device={self.device!r}"
        arguments = f"{where}, level={self.level!r}, seed={self.seed}, items=[{item!r}]"
        return "\n".join([*setup(self.op), f"report = opsmith.check(op, {arguments})", "assert report.ok, report"])


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
