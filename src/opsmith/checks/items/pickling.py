"""The op, modules that hold it, and its results survive pickle, deepcopy and torch.save unchanged."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

from ...operator.op import Op
from .. import memory
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..reproduction import in_new_process
from ..subject import Subject, listed
from ._cases import generated_case, has_gradients, skip_random
from ._compare import failing_on_error


class Holder(torch.nn.Module):
    """A module that calls an op."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)


def _saved_and_loaded(value: Any) -> Any:
    """Through torch.save and torch.load, as a whole object and not only weights."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


METHODS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
    "deepcopy": copy.deepcopy,
    "torch.save": _saved_and_loaded,
}


def check(subject: Subject) -> str:
    case = generated_case(subject)
    skip_random(subject, case)
    check_call(subject, case)
    summary = ["its results"]
    if isinstance(subject.op, Op):
        summary = ["the op", "a module that holds it", *summary]
        if subject.full:
            summary.append(_in_new_process(subject.op, subject))
    return f"{', '.join(summary)}; by {', '.join(METHODS)}"


def check_call(subject: Subject, case: Case) -> None:
    for method, through in METHODS.items():
        with failing_on_error(case):
            if isinstance(subject.op, Op):
                _check_op(subject, case, method, through)
            _check_results(subject, case.requiring() if has_gradients(subject, case) else case, method, through)
    if has_gradients(subject, case):
        _check_leaves(subject, case.requiring())


def _check_op(subject: Subject, case: Case, method: str, through: Callable[[Any], Any]) -> None:
    copied = through(subject.op)
    if copied is not subject.op:
        raise Failed(f"after {method} the op is a different object: {copied!r}", case)
    module = through(Holder(subject.op))
    positional, keyword = subject.signature.arranged(subject.copied(case.values))
    if not memory.same_bits(listed(module(*positional, **keyword)), subject.call(case.values)):
        raise case.failed(f"after {method} a module that holds the op gives different results")


def _check_results(subject: Subject, case: Case, method: str, through: Callable[[Any], Any]) -> None:
    """Also results with a history; deepcopy alone refuses these, for any operator."""
    results = subject.call(case.values)
    if not memory.same_bits([through(each.detach() if method == "deepcopy" else each) for each in results], results):
        raise case.failed(f"{method} changes a result")


def _check_leaves(subject: Subject, case: Case) -> None:
    """Inputs with a gradient from the op."""
    results = [result for result in subject.call(case.values) if result.requires_grad]
    torch.autograd.backward(results, [torch.ones_like(result) for result in results])
    for name, leaf in case.leaves():
        if leaf.grad is not None and not memory.same_bits([copy.deepcopy(leaf).grad], [leaf.grad]):
            raise case.failed(f"the gradient of {name} is lost in deepcopy")


def _in_new_process(op: Op, subject: Subject) -> str:
    """Unpickles the op in a process that has not imported the module that declares it."""
    if op.__module__ == "__main__":
        return "(not in a new process: it is declared in __main__, which no other process can import)"
    text = f"__import__('pickle').loads({pickle.dumps(op)!r})"
    before = ["try:", f"    {text}", "    print('unpickled')", "except Exception as error:", "    print(repr(error))"]
    try:
        finished = in_new_process(subject, [], before)
    except Skipped as reason:
        return f"(in a new process not tried: {reason})"
    if "unpickled" not in finished.output.splitlines():
        lines = [
            "import pickle, subprocess, sys",
            'text = f"import pickle; pickle.loads({pickle.dumps(op)!r})"',
            "subprocess.run([sys.executable, '-c', text], check=True)",
        ]
        error = finished.output.splitlines()[0]
        raise Failed(f"it can be pickled here, but a new process cannot unpickle it: {error}", None, lines)
    return "the op in a new process"
