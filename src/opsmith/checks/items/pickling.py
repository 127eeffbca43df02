"""The op, modules that hold it, and its results can be pickled, copied and saved, and are what they were after that."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import torch

from ...operator.op import Op
from .. import memory
from ..calls.pickling import Holder, saved_and_loaded
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..process import run
from ..subject import Subject, listed
from ._choice import deterministic, has_gradients, made_up
from ._truth import raising

IMPORTS = "import copy, pickle"
ROADS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pickle": (lambda each: pickle.loads(pickle.dumps(each)), "pickle.loads(pickle.dumps({}))"),
    "deepcopy": (copy.deepcopy, "copy.deepcopy({})"),
    "torch.save": (saved_and_loaded, "opsmith.checks.calls.pickling.saved_and_loaded({})"),
}


def check(subject: Subject) -> str:
    case = made_up(subject)
    deterministic(subject, case)
    told = []
    if isinstance(subject.op, Op):
        _op(subject, case)
        _module(subject, case)
        told = ["the op", "a module that holds it"]
    _results(subject, case)
    if has_gradients(subject, case):
        _leaf(subject, case.requiring())
    told.append("its results")
    if subject.full and isinstance(subject.op, Op):
        told.append(_in_new_process(subject))
    return f"{', '.join(told)}; by {', '.join(ROADS)}"


def _op(subject: Subject, case: Case) -> None:
    for road, (through, code) in ROADS.items():
        lines = [IMPORTS, f"assert {code.format('op')} is op"]
        with raising(case, lines):
            copied = through(subject.op)
        if copied is not subject.op:
            raise Failed(f"by {road}, the op becomes another: {copied!r}", case, lines)


def _module(subject: Subject, case: Case) -> None:
    for road, (through, code) in ROADS.items():
        call = case.call(code.format("opsmith.checks.calls.pickling.Holder(op)"))
        lines = [IMPORTS, "listed = opsmith.checks.subject.listed"]
        lines.append(f"assert opsmith.checks.memory.same_bits(listed({call}), listed({case.call()}))")
        with raising(case, lines):
            module = through(Holder(subject.op))
            copies = [v.clone() if a.mutated else v for a, v in zip(case.arguments, case.values, strict=True)]
            positional, keyword = subject.arranged(copies)
            found = listed(module(*positional, **keyword))
        if not memory.same_bits(found, subject.call(case.values)):
            raise Failed(f"{case.name}: by {road}, a module that holds the op gives other numbers", case, lines)


def _results(subject: Subject, case: Case) -> None:
    """Also of those that have a history: deepcopy alone refuses these, whosever they are."""
    own = case.requiring() if has_gradients(subject, case) else case
    for road, (through, code) in ROADS.items():
        detached = road == "deepcopy"
        each = code.format("each.detach()" if detached else "each")
        line = f"assert opsmith.checks.memory.same_bits([{each} for each in results], results)"
        lines = [IMPORTS, f"results = opsmith.checks.subject.listed({case.call()})", line]
        with raising(own, lines):
            results = subject.call(own.values)
            copies = [through(result.detach() if detached else result) for result in results]
        if not memory.same_bits(copies, results):
            raise Failed(f"{case.name}: by {road}, a result becomes another", own, lines)


def _leaf(subject: Subject, case: Case) -> None:
    """An input that has got its gradient from the op."""
    results = [result for result in subject.call(case.values) if result.requires_grad]
    torch.autograd.backward(results, [torch.ones_like(result) for result in results])
    for name, leaf in case.leaves():
        copied = copy.deepcopy(leaf)
        if leaf.grad is not None and not memory.same_bits([copied.grad], [leaf.grad]):
            lines = [
                f"results = [each for each in opsmith.checks.subject.listed({case.call()}) if each.requires_grad]",
                "torch.autograd.backward(results, [torch.ones_like(each) for each in results])",
                f"{IMPORTS}\nassert torch.equal(copy.deepcopy({name}).grad, {name}.grad)",
            ]
            raise Failed(f"{case.name}: the gradient of {name} is lost by deepcopy", case, lines)


def _in_new_process(subject: Subject) -> str:
    """Which has not imported what declares it."""
    if isinstance(subject.op, Op) and subject.op.module == "__main__":
        return "(not in a new process: it is declared in __main__, which no other process can import)"
    text = f"__import__('pickle').loads({pickle.dumps(subject.op)!r})"
    before = ["try:", f"    {text}", "    print('unpickled')", "except Exception as error:", "    print(repr(error))"]
    try:
        finished = run(subject, [], before)
    except Skipped as reason:
        return f"(in a new process not tried: {reason})"
    if "unpickled" not in finished.output.splitlines():
        lines = [
            "import pickle, subprocess, sys",
            'text = f"import pickle; pickle.loads({pickle.dumps(op)!r})"',
            "subprocess.run([sys.executable, '-c', text], check=True)",
        ]
        said = finished.output.splitlines()[0]
        raise Failed(f"it is pickled here, and a new process cannot unpickle it: {said}", None, lines)
    return "the op in a new process"
