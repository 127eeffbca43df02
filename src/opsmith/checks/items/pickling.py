"""The op, modules that hold it, and its results survive pickle, deepcopy and torch.save unchanged."""

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
METHODS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pickle": (lambda each: pickle.loads(pickle.dumps(each)), "pickle.loads(pickle.dumps({}))"),
    "deepcopy": (copy.deepcopy, "copy.deepcopy({})"),
    "torch.save": (saved_and_loaded, "opsmith.checks.calls.pickling.saved_and_loaded({})"),
}


def check(subject: Subject) -> str:
    case = made_up(subject)
    deterministic(subject, case)
    summary = []
    if isinstance(subject.op, Op):
        _op(subject, case)
        _module(subject, case)
        summary = ["the op", "a module that holds it"]
    _results(subject, case)
    if has_gradients(subject, case):
        _leaf(subject, case.requiring())
    summary.append("its results")
    if subject.full and isinstance(subject.op, Op):
        summary.append(_in_new_process(subject))
    return f"{', '.join(summary)}; by {', '.join(METHODS)}"


def _op(subject: Subject, case: Case) -> None:
    for method, (through, code) in METHODS.items():
        lines = [IMPORTS, f"assert {code.format('op')} is op"]
        with raising(case, lines):
            copied = through(subject.op)
        if copied is not subject.op:
            raise Failed(f"after {method} the op is a different object: {copied!r}", case, lines)


def _module(subject: Subject, case: Case) -> None:
    for method, (through, code) in METHODS.items():
        call = case.call(code.format("opsmith.checks.calls.pickling.Holder(op)"))
        lines = [IMPORTS, "listed = opsmith.checks.subject.listed"]
        lines.append(f"assert opsmith.checks.memory.same_bits(listed({call}), listed({case.call()}))")
        with raising(case, lines):
            module = through(Holder(subject.op))
            positional, keyword = subject.arranged(subject.copied(case.values))
            found = listed(module(*positional, **keyword))
        if not memory.same_bits(found, subject.call(case.values)):
            raise Failed(f"{case.name}: after {method} a module that holds the op gives different results", case, lines)


def _results(subject: Subject, case: Case) -> None:
    """Also of those that have a history: deepcopy alone refuses these, for any operator."""
    own = case.requiring() if has_gradients(subject, case) else case
    for method, (through, code) in METHODS.items():
        detached = method == "deepcopy"
        each = code.format("each.detach()" if detached else "each")
        line = f"assert opsmith.checks.memory.same_bits([{each} for each in results], results)"
        lines = [IMPORTS, f"results = opsmith.checks.subject.listed({case.call()})", line]
        with raising(own, lines):
            results = subject.call(own.values)
            copies = [through(result.detach() if detached else result) for result in results]
        if not memory.same_bits(copies, results):
            raise Failed(f"{case.name}: {method} changes a result", own, lines)


def _leaf(subject: Subject, case: Case) -> None:
    """An input with a gradient from the op."""
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
            raise Failed(f"{case.name}: the gradient of {name} is lost in deepcopy", case, lines)


def _in_new_process(subject: Subject) -> str:
    """A process that has not imported the module that declares the op."""
    if isinstance(subject.op, Op) and subject.op.__module__ == "__main__":
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
        raise Failed(f"it can be pickled here, but a new process cannot unpickle it: {said}", None, lines)
    return "the op in a new process"
