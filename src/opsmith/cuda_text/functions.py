"""The declarations of a file; its functions (host functions, kernels, device functions) with parameters and bodies.

Read by brackets, without a grammar. Lambdas belong to the function they are in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from .code import Code
from .parameters import BUILTIN, Parameter, parameter_in, template_parameters
from .variables import Variables

Kind = Literal["host", "kernel", "device"]

NOT_NAMES = {
    "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__", "__attribute__",
    "__declspec", "alignas", "decltype", "noexcept", "requires", "sizeof", "alignof", "explicit", "throw", "if", "for",
    "while", "switch", "catch", "return", "asm", "static_assert", "defined",
}  # fmt: skip
"""Words before brackets that are not a function's name."""
_NOT_FUNCTIONS = NOT_NAMES | BUILTIN
_CLASSES = {"class", "struct", "union"}
_ACCESS = {"public", "private", "protected"}
_DEVICE = re.compile(r"__device__|\w*DEVICE\w*|GPU_LAMBDA")


class Signature(NamedTuple):
    """The tokens of a function's name and of the bracket that opens its parameters."""

    name: int
    opening: int
    has_initializers: bool = False  # a constructor's, after its parameters


class Declaration(NamedTuple):
    """The tokens up to a `;` or a function's body. `signature` is of a function with a body; None for others."""

    first: int
    last: int
    signature: Signature | None
    namespace: str  # 'a::b::', or ''
    in_class: bool


class Function:
    """A function with a body. `head` is from its first token to its body, `body` is inside its braces."""

    def __init__(self, code: Code, declaration: Declaration, signature: Signature) -> None:
        first, last = self.head = declaration.first, declaration.last
        self.code = code
        self.name = code.texts[signature.name]
        self.kind: Kind = "host"
        if any(_DEVICE.fullmatch(word) for word in code.texts[first:last]):
            self.kind = "device"
        if "__global__" in code.texts[first:last]:
            self.kind = "kernel"
        self.body = last + 1, code.closing(last)
        self._parameter_list = signature.opening + 1, code.closing(signature.opening)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Those with a name."""
        parameters = (parameter_in(self.code, *part) for part in self.code.split(*self._parameter_list))
        return [parameter for parameter in parameters if parameter.name]

    @cached_property
    def template_parameters(self) -> dict[str, tuple[str, ...]]:
        """By name the words before it: {'T': ('typename',), 'N': ('int',)}."""
        found = {}
        for index in range(*self.head):
            if self.code.texts[index] == "template":
                for first, last in template_parameters(self.code, index):
                    *type, name = self.code.texts[first : self.code.find({"="}, first, last)] or [""]
                    found[name] = tuple(type)
        return found

    @cached_property
    def variables(self) -> Variables:
        return Variables(self.code, self.parameters, self.body)

    @cached_property
    def texts(self) -> frozenset[str]:
        """The tokens of the body."""
        return frozenset(self.code.texts[slice(*self.body)])

    def __contains__(self, index: int) -> bool:
        return self.body[0] <= index < self.body[1]


def functions_in(code: Code) -> list[Function]:
    """Every function with a body, in order: at file scope, in namespaces, in classes."""
    return [Function(code, each, each.signature) for each in scan(code) if each.signature is not None]


def scan(code: Code) -> Iterator[Declaration]:
    """The declarations at file scope, in namespaces and in classes."""
    start, index, end = 0, 0, len(code)
    namespace, in_class = "", False
    outer: list[tuple[int | None, str, bool]] = []  # where a class begins, and the scope around
    while index < end:
        text = code.texts[index]
        if text == ";":
            yield Declaration(start, index, None, namespace, in_class)
            start = index + 1
        elif text == "}":
            begin = None
            if outer:
                begin, namespace, in_class = outer.pop()
            start = index + 1 if begin is None else begin  # a class may declare a variable: struct { } x;
        elif text == ":" and code.at(index - 1) in _ACCESS:
            start = index + 1
        elif text in ("(", "["):
            index = code.closing(index)
        elif text == "{":
            signature = signature_in(code, start, index)
            names = _namespace(code, start, index)
            if names is not None:
                outer.append((None, namespace, in_class))
                namespace += names
                start = index + 1
            elif signature is None and not _CLASSES.isdisjoint(code.texts[start:index]):
                outer.append((start, namespace, in_class))
                in_class, start = True, index + 1
            else:
                is_initializer = code.is_word(index - 1) or code.at(index - 1) == ">"  # of a member: `: count{0}`
                if signature is not None and not (signature.has_initializers and is_initializer):
                    yield Declaration(start, index, signature, namespace, in_class)
                    start = code.closing(index) + 1
                index = code.closing(index)
        index += 1


def _namespace(code: Code, first: int, last: int) -> str | None:
    """'a::b::' for `namespace a::b {`, '' for `namespace {` and `extern "C" {`, None for other declarations."""
    words = [code.texts[index] for index in code.outside(first, last)]
    if "namespace" in words:
        names = [word for word in words[words.index("namespace") + 1 :] if word.isidentifier()]
        return "".join(f"{name}::" for name in names if name not in NOT_NAMES and name != "inline")
    return "" if words[:1] == ["extern"] and len(words) == 2 else None


def signature_in(code: Code, first: int, last: int) -> Signature | None:
    """The function that a range declares: the last name before brackets, since macros may stand before it.

    A later name in capitals is a macro too: `f(int x) ATTRIBUTE(2)`."""
    found: Signature | None = None
    index = first
    while index < last:
        text = code.texts[index]
        if text == "template" and code.at(index + 1) == "<":
            index = max(index, min(code.template_end(index + 1), last - 1))
        elif text == "operator":
            start = index + 3 if code.texts[index + 1 : index + 3] == ["(", ")"] else index + 1
            opening = next((at for at in range(start, last) if code.texts[at] == "("), last)
            if opening < last:
                found = Signature(index, opening)
                index = code.closing(opening, last)
        elif text == "(":
            name = code.before_template(index - 1)
            if name >= first and code.is_word(name) and code.texts[name] not in _NOT_FUNCTIONS:
                if index not in code.partner:
                    return None
                if found is None or not code.texts[name].isupper():
                    found = Signature(name, index)
            index = code.closing(index, last)
        elif text in ("[", "{"):
            index = code.closing(index, last)
        elif text == ":" and found is not None:
            return found._replace(has_initializers=True)
        elif text == "->" and found is not None:
            return found
        elif text == "=":
            return None
        index += 1
    return found
