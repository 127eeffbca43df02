"""undeclared-mutation: an input that is written although its schema does not declare it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ...cuda_text import Call, Function, is_string
from ..accesses import accesses_of
from ..rule import Problem, rule
from ..source import Source

_SCHEMA = re.compile(r"(?:\w+::)?(\w+)(?:\.\w+)?\s*\((.*)\)\s*->", re.DOTALL)
_IN_PLACE = re.compile(r"[a-z]\w*[a-z0-9]_")
_NO_CHANGE = {"requires_grad_", "retain_grad_", "detach_", "record_stream_"}


class _Argument(NamedTuple):
    name: str
    is_tensor: bool
    is_declared: bool


@rule("Autograd and torch.compile assume that an argument without (a!) does not change, and use its old value.")
def undeclared_mutation(source: Source) -> Iterator[Problem]:
    """A function under TORCH_LIBRARY that writes a tensor which the schema, in the same file, does not mark."""
    schemas = dict(_schemas(source))
    for name, implementation in _implementations(source):
        schema = schemas.get(name, [])
        if len(schema) != len(implementation.parameters):
            continue
        for argument, parameter in zip(schema, implementation.parameters, strict=True):
            if argument.is_tensor and not argument.is_declared and "Tensor" in parameter.type:
                for written in islice(_writes(source, implementation, parameter.name), 1):
                    message = (
                        f"{implementation.name} writes {parameter.name}, which the schema of {name} does not declare."
                    )
                    remedy = f"Declare it: Tensor(a!) {argument.name}; or write into a fresh tensor."
                    yield Problem(source.code, written, message, remedy)


def _schemas(source: Source) -> Iterator[tuple[str, list[_Argument]]]:
    for call in source.code.calls("def"):
        found = _SCHEMA.search(_string(source, call)) if call.arguments else None
        if found:
            arguments = re.split(r",(?![^\[\]]*\])", found[2])
            yield found[1], [_argument(text) for text in arguments if text.strip() not in ("", "*")]


def _argument(text: str) -> _Argument:
    words = text.partition("=")[0].split()
    return _Argument(words[-1] if words else "", text.strip().startswith("Tensor"), "!" in text)


def _string(source: Source, call: Call) -> str:
    """The first argument, if it is a string, or strings side by side."""
    texts = [text for text in source.code.texts[slice(*call.arguments[0])] if is_string(text)]
    return "".join(re.sub(r'^[^"]*"|"$', "", text) for text in texts)


def _implementations(source: Source) -> Iterator[tuple[str, Function]]:
    """m.impl("add_two", &add_two), m.impl("add_two", TORCH_FN(add_two)), m.def("add_two(...) -> ...", &add_two)"""
    functions = {function.name: function for function in source.host_functions}
    for word in ("impl", "def"):
        for call in source.code.calls(word):
            if len(call.arguments) < 2:
                continue
            name = re.match(r"\W*(?:\w+::)?(\w+)", re.sub(r"^\w*R?\"\w*\(", "", _string(source, call)))
            named = [text for text in source.code.texts[slice(*call.arguments[-1])] if text in functions]
            if name and named:
                yield name[1], functions[named[-1]]


def _writes(source: Source, function: Function, name: str) -> Iterator[int]:
    """Where a function writes a tensor parameter: by a method in place, or by a kernel of this file."""
    code, variables = function.code, function.variables
    parameter = next(each for each in variables if each.name == name and each.parameter)
    if parameter.definitions:
        return  # x = x.contiguous(): it may be another tensor by then
    for index in code.words[name]:
        if index in function and variables.at(index) is parameter and code.at(index + 1) in (".", "->"):
            method = code.at(index + 2)
            is_in_place = method == "mutable_data_ptr" or (_IN_PLACE.fullmatch(method) and method not in _NO_CHANGE)
            if is_in_place and code.at(index + 3) in ("(", "<"):
                yield index
    for launch in source.launches:
        kernel = source.kernels.get(launch.kernel)
        if kernel is not None and launch.arguments is not None:
            written = {access.pointer.name for access in accesses_of(kernel) if access.writes}
            for taken, (first, _) in zip(kernel.parameters, launch.arguments, strict=False):
                if taken.name in written and variables.at(first) is parameter:
                    yield first
