"""The same call gives the same bits: again, after other work, and for any order of thread blocks."""

from __future__ import annotations

import torch

from ...reference.purity import RandomState
from ..cases.case import Case
from ..memory import Outputs, same_bits
from ..outcome import Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._cases import draws_random_numbers, has_gradients
from ._compare import failing_on_error

ON = ("cpu", "cuda", "emulated")
AGAIN = 3
SEED = 12345
LARGE = 1 << 21
"""Elements of a call that several threads, or many blocks, share."""
SEEDS = (1, 2, 3)
"""Of the emulator, added to the check's own."""


def check(subject: Subject) -> str:
    calls = sum(check_call(subject, case) for dtype in subject.dtypes for case in _cases(subject, dtype))
    if not calls:
        raise Uncovered(f"{TOO_LARGE} to {LARGE} elements")
    return f"{calls} calls repeated"


def check_call(subject: Subject, case: Case) -> int:
    """How many calls were repeated."""
    gradients = has_gradients(subject, case)
    first = _outputs(subject, case, gradients)
    for _ in range(AGAIN):
        _other_work(subject, case)
        _require_same(case, first, _outputs(subject, case, gradients), "from one call to the next")
    orders = _check_other_orders(subject, case, gradients, first) if subject.emulated else 0
    modes = 0 if subject.inplace else _check_without_gradients(subject, case)
    if not draws_random_numbers(subject, case):
        _check_generators(subject, case)
    return AGAIN + orders + modes


def _check_without_gradients(subject: Subject, case: Case) -> int:
    """Results must not depend on whether a gradient is recorded."""
    leaves = case.requiring() if has_gradients(subject, case) else case

    def record() -> list[torch.Tensor]:
        torch.manual_seed(subject.seed)
        with torch.enable_grad():
            return [result.detach() for result in subject.call(leaves.values)]

    recorded = record()
    for mode in (torch.no_grad, torch.inference_mode):
        torch.manual_seed(subject.seed)
        with mode():
            plain = subject.call(case.values)
        if not same_bits(recorded, plain):
            for _ in range(AGAIN):  # which may be the fault of neither mode
                _require_same(case, recorded, record(), "from one call to the next")
            _require_same(case, recorded, plain, f"inside torch.{mode.__name__}()")
    return 2


def _check_generators(subject: Subject, case: Case) -> None:
    """An op that draws nothing does not change the numbers that are drawn after it."""
    torch.manual_seed(SEED)
    state = RandomState(case.every_tensor())
    subject.call(case.values)
    if state.has_changed():
        raise case.failed("it draws random numbers, or seeds them, which its reference does not")


def _check_other_orders(subject: Subject, case: Case, gradients: bool, first: Outputs) -> int:
    from ...emulator import emulate

    for seed in SEEDS:
        with emulate(seed=subject.seed + seed):
            again = _outputs(subject, case, gradients)
        _require_same(case, first, again, "in another order of blocks")
    return len(SEEDS)


def _cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """Some small ones, and the largest: only many elements are shared between threads."""
    largest = max(subject.cases(dtype, LARGE), key=lambda case: case.numel, default=None)
    found = subject.some_cases(dtype, SMALL)
    return found if largest is None or any(case is largest for case in found) else [*found, largest]


def _outputs(subject: Subject, case: Case, gradients: bool) -> Outputs:
    torch.manual_seed(subject.seed)  # for a reference that draws random numbers
    with failing_on_error(case):
        return [t for _, t in subject.evaluate(case, gradients)]


def _other_work(subject: Subject, case: Case) -> None:
    """Leaves other numbers in the memory that the next call allocates, and in whatever the op keeps."""
    left = [torch.full_like(tensor, 3) for tensor in case.every_tensor()]
    others = [other for other in subject.cases(case.dtype, SMALL) if other is not case]
    for other in others[:1]:
        subject.call(other.values)
    del left


def _require_same(case: Case, first: Outputs, again: Outputs, when: str) -> None:
    if same_bits(first, again):
        return
    message = "what it returns differs"
    for index, (mine, other) in enumerate(zip(first, again, strict=True)):
        if mine is not None and other is not None and not same_bits([mine], [other]):
            message = f"output {index} differs in {int((mine != other).sum())} of {mine.numel()} elements"
            break
    raise case.failed(f"{message} {when}")
