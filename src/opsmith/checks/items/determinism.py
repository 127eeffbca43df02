"""The same call gives the same bits: again, after other work, and for any order of thread blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...reference.purity import RandomState
from ..accuracy.evaluate import evaluate
from ..cases.case import Case
from ..memory import same_bits
from ..outcome import Failed, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._choice import draws_random_numbers, has_gradients, named_tensors, outputs_of
from ._truth import raising

ON = ("cpu", "cuda", "emulated")
AGAIN = 3
SEED = 12345
LARGE = 1 << 21
"""Elements of a call that several threads, or many blocks, share."""
SEEDS = (1, 2, 3)
"""Of the emulator, besides the check's own."""


def check(subject: Subject) -> str:
    calls = 0
    for dtype in subject.dtypes:
        for case in _cases(subject, dtype):
            gradients = has_gradients(subject, case)
            first = _outputs(subject, case, gradients)
            for _ in range(AGAIN):
                _other_work(subject, case)
                _look(subject, case, gradients, first, _outputs(subject, case, gradients))
                calls += 1
            if subject.emulated:
                calls += _other_orders(subject, case, gradients, first)
            calls += _without_gradients(subject, case)
            _leaves_generators_alone(subject, case)
    if not calls:
        raise Uncovered(f"{TOO_LARGE} to {LARGE} elements")
    return f"{calls} calls repeated"


def _without_gradients(subject: Subject, case: Case) -> int:
    """Whether a gradient is recorded is nothing that numbers depend on."""
    if subject.inplace:
        return 0
    leaves = case.requiring() if has_gradients(subject, case) else case

    def record() -> list[torch.Tensor]:
        torch.manual_seed(subject.seed)
        with torch.enable_grad():
            return [result.detach() for result in subject.call(leaves.values)]

    recorded = record()
    for mode in ("no_grad", "inference_mode"):
        torch.manual_seed(subject.seed)
        with getattr(torch, mode)():
            plain = subject.call(case.values)
        if not same_bits(recorded, plain):
            for _ in range(AGAIN):  # which may be neither's fault
                _look(subject, case, False, recorded, record())
            seeded, listed = f"torch.manual_seed({subject.seed})", "opsmith.checks.subject.listed"
            lines = [
                seeded,
                f"recorded = [each.detach() for each in {listed}({leaves.call()})]",
                seeded,
                f"with torch.{mode}():",
                f"    assert opsmith.checks.memory.same_bits(recorded, {listed}({case.call()}))",
            ]
            text = f"{_difference(recorded, plain)} inside torch.{mode}()"
            raise Failed(f"{case.name}: {text}", leaves, lines)
    return 2


def _leaves_generators_alone(subject: Subject, case: Case) -> None:
    """An op that draws nothing leaves the numbers of what is drawn after it as they are."""
    if draws_random_numbers(subject, case):
        return
    torch.manual_seed(SEED)
    state = RandomState(case.every_tensor())
    subject.call(case.values)
    if state.has_changed():
        lines = [
            f"torch.manual_seed({SEED})",
            f"state = opsmith.reference.purity.RandomState([{', '.join(name for name, _, _ in named_tensors(case))}])",
            case.call(),
            "assert not state.has_changed()",
        ]
        text = "it draws random numbers, or seeds them, which its reference does not"
        raise Failed(f"{case.name}: {text}", case, lines)


def _cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """Some small ones, and the largest: only many elements are shared between threads."""
    largest = max(subject.cases(dtype, LARGE), key=lambda case: case.numel, default=None)
    found = subject.some_cases(dtype, SMALL)
    return found if largest is None or any(case is largest for case in found) else [*found, largest]


def _outputs(subject: Subject, case: Case, gradients: bool) -> list[torch.Tensor | None]:
    torch.manual_seed(subject.seed)  # for a reference that draws random numbers
    with raising(case, [outputs_of(case, gradients)]):
        named = evaluate(subject.arguments, subject.raw, case.values, gradients=gradients)
    return [tensor for _, tensor in named]


def _other_work(subject: Subject, case: Case) -> None:
    """Leaves other numbers in the memory that the next call is given, and in whatever the op keeps."""
    left = [torch.full_like(tensor, 3) for tensor in case.every_tensor()]
    others = [other for other in subject.cases(case.dtype, SMALL) if other is not case]
    for other in others[:1]:
        subject.call(other.values)
    del left


def _look(
    subject: Subject,
    case: Case,
    gradients: bool,
    first: Sequence[torch.Tensor | None],
    again: Sequence[torch.Tensor | None],
) -> None:
    if same_bits(first, again):
        return
    message = f"{case.name}: {_difference(first, again)} from one call to the next"
    raise Failed(message, case, _lines(subject, case, gradients))


def _lines(subject: Subject, case: Case, gradients: bool) -> list[str]:
    """The call again and again; where it is emulated, in another order of blocks each time."""
    call = outputs_of(case, gradients)
    seeded = f"torch.manual_seed({subject.seed})"
    repeated = [seeded, f"assert opsmith.checks.memory.same_bits(first, {call})"]
    if subject.emulated:
        repeated = ["with opsmith.emulate(seed=seed):", *(f"    {line}" for line in repeated)]
    return [seeded, f"first = {call}", "for seed in range(50):", *(f"    {line}" for line in repeated)]


def _difference(first: Sequence[torch.Tensor | None], again: Sequence[torch.Tensor | None]) -> str:
    for index, (mine, other) in enumerate(zip(first, again, strict=True)):
        if mine is not None and other is not None and not same_bits([mine], [other]):
            unlike = int((mine != other).sum())
            return f"output {index} differs in {unlike} of {mine.numel()} elements"
    return "what it returns differs"


def _other_orders(subject: Subject, case: Case, gradients: bool, first: Sequence[torch.Tensor | None]) -> int:
    from ...emulator import emulate

    for seed in SEEDS:
        with emulate(seed=subject.seed + seed):
            again = _outputs(subject, case, gradients)
        if not same_bits(first, again):
            raise Failed(
                f"{case.name}: {_difference(first, again)} in another order of blocks",
                case,
                _lines(subject, case, gradients),
            )
    return len(SEEDS)
