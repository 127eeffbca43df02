"""The one Python file of a kernel for the Hub: its ops as functions, each with reference, shape rule and gradient."""

from __future__ import annotations

import inspect
import keyword
import textwrap
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ...errors import HubError
from ...errors.base import definition
from ...kernels import GeneratedKernel, NativeKernel
from ...operator.op import Op
from ...reference.purity import Audit
from ...reference.signature import Signature, split_name
from ...reference.tensors import DTYPE_CLASSES
from ...runtime.operator import Operator
from . import registration
from .bundler import Bundler, literal
from .layers import Layer, classes, layers_of, modules_of

NAMESPACE = "@namespace@"
"""A placeholder for the namespace, which contains a digest of the text."""

_TYPES = {
    "Tensor": "torch.Tensor", "SymInt": "int", "ScalarType": "torch.dtype", "Device": "torch.device",
    "Scalar": "int | float | complex",
}  # fmt: skip
_ROLES = ("forward", "functional", "backward", "second", "out")
_RESERVED = ("annotations", "torch", "types", "Path", "layers", "_package")


class Text(NamedTuple):
    """The file, the packages that it needs in addition to torch, and notes for the author."""

    text: str
    dependencies: Sequence[str]
    notes: Sequence[str]


def initialiser(
    package: ModuleType,
    ops: Sequence[Op],
    library: str | None,
    served: Mapping[str, bool],
    proof: Mapping[str, frozenset[str]],
) -> Text:
    """`library`: the file name of the shared library. `served`: which operators it has kernels for, by name. `proof`:
    by op, the check items that passed. Raises HubError and NotSelfContainedError."""
    names = _names(package.__name__, ops)
    packages = ("opsmith.ops", "opsmith.nn") if package.__name__ == "opsmith" else (package.__name__.partition(".")[0],)
    bundler = Bundler(names, packages, (*_RESERVED, *(each.__name__ for each in modules_of(package))))
    parts = [_parts(op, bundler, served) for op in ops]
    found, notes = layers_of(package, bundler, proof)
    opened = bundler.bundle(registration.opened, "opsmith", "open_package", ("opsmith",))
    made = bundler.bundle(registration.Parts, "opsmith", "Parts", ("opsmith",))
    functions = [_function(op, names[op.name]) for op in ops]
    sections = [
        _heading(package, ops, found),
        bundler.text(),
        _registered(opened, made, parts, library),
        *functions,
        *([classes(found)] if found else []),
    ]
    text = "\n\n".join(section.strip("\n") + "\n" for section in sections)
    return Text(text, sorted(bundler.dependencies), notes)


def _names(package: str, ops: Sequence[Op]) -> dict[str, str]:
    """By op, the name of its function."""
    names: dict[str, str] = {}
    for op in ops:
        base = split_name(op.name)[1]
        if base in names.values():
            other = next(name for name, own in names.items() if own == base)
            what = f"{other} and {op.name} would both be the function {base}. Rename one"
            raise HubError(package, what, definition(op.reference))
        if base in _RESERVED or keyword.iskeyword(base):
            what = f"{op.name} would be the function {base}, which the file uses for something else. Rename it"
            raise HubError(package, what, definition(op.reference))
        names[op.name] = base
    if not names:
        raise HubError(package, "it declares no op")
    return names


# --- one op -----------------------------------------------------------------------------------------------------------


def operators_of(op: Op) -> dict[str, Operator]:
    """The public operators of an op, by role."""
    family = op._families.default
    backward = family.backward
    found = {"forward": family.forward, "functional": family.functional, "backward": backward}
    found |= {"second": backward.backward, "out": family.out}
    return {role: found[role] for role in _ROLES if found[role] is not None}  # type: ignore[misc]


def _parts(op: Op, bundler: Bundler, served: Mapping[str, bool]) -> dict[str, str]:
    """The fields of one op's Parts, as expressions."""
    owner = f"The op {op.name}"
    base = split_name(op.name)[1]
    family = op._families.default
    operators = operators_of(op)
    source = family.differentiable
    schemas = {role: each.signature.schema(each.base) for role, each in operators.items()}
    fields = {"schemas": _dictionary(schemas)}
    fields["reference"] = bundler.bundle(op.reference, owner, f"{base}_reference")
    if family.forward.written_fake is not None:
        fields["fake"] = bundler.bundle(family.forward.written_fake, owner, f"{base}_fake")
    if source.written_gradient is not None:
        backward, setup = source.written_gradient
        bundled = bundler.bundle(backward, owner, f"{base}_gradient")
        context = "None" if setup is None else bundler.bundle(setup, owner, f"{base}_setup_context")
        fields["gradient"] = f"({bundled}, {context})"
    if family.forward.reference.keeps_layout:
        fields["keeps_layout"] = "True"
    if op.is_generated:
        fields["generated"] = "True"
    saves, kept, passthrough = _memory(source, served)
    for name, values in (("saves", saves), ("results_kept", kept), ("passthrough", passthrough)):
        if values:
            fields[name] = _dictionary(values)
    autocast = {device: policy for device, policy in family.forward.autocast.items() if policy != "keep"}
    if autocast:
        pairs = (f'"{device}": {literal(policy)}' for device, policy in autocast.items())
        fields["autocast"] = f"{{{', '.join(pairs)}}}"
    random = _random(op)
    if random:
        fields["random"] = repr(random)
    return fields


def _memory(source: Operator, served: Mapping[str, bool]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What a call saves for its backward kernel, if the library has it: (arguments, results, gradients passed on), each
    by device.

    A C++ function takes every call of its device, so inputs that it does not name need not be saved. Of generated
    kernels only the instances that were built are there, and the reference, which serves the rest, needs every
    input."""
    saves: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    passthrough: dict[str, Any] = {}
    assert source.backward is not None
    if not served.get(source.backward.base):
        return saves, kept, passthrough
    for device, kernel in source.backward.kernels.items():
        if not isinstance(kernel, (NativeKernel, GeneratedKernel)):
            continue
        for label in DTYPE_CLASSES:
            named = kernel.saves_for(label)
            if named is None:
                continue
            results = tuple(name for name in source.signature.result_names if name in named)
            if results:
                kept[f"{device} {label}"] = results
            if isinstance(kernel, NativeKernel):
                saves[f"{device} {label}"] = tuple(named)
        if kernel.passthrough is not None and any(place is not None for place in kernel.passthrough):
            passthrough[device] = kernel.passthrough
    return saves, kept, passthrough


def _random(op: Op) -> str:
    """The line of the reference that draws random numbers on a sample; empty if none does or there is no sample."""
    if op.samples is None:
        return ""
    try:
        sample = next(iter(op.samples_for("cpu", torch.float32)), None)
        if sample is None:
            return ""
        tensors = [each for each in sample.args if isinstance(each, torch.Tensor) and not op.signature.mutated]
        with torch.no_grad(), Audit(op.name, op.reference, [(str(i), t) for i, t in enumerate(tensors)]) as audit:
            op.reference(*sample.args, **sample.kwargs)
    except Exception:  # it is for another device or dtype
        return ""
    return "" if audit.random is None else audit.random[0]


# --- text -------------------------------------------------------------------------------------------------------------


def _heading(package: ModuleType, ops: Sequence[Op], layers: Sequence[Layer]) -> str:
    public = [split_name(op.name)[1] for op in ops] + (["layers"] if layers else [])
    return f'''"""The ops of {package.__name__}, with their compiled kernels, gradients and shape rules.

Written by `opsmith build --hf-kernel`; it needs only torch.
"""

from __future__ import annotations

__all__ = [{
        "".join(
            f"""
    "{name}","""
            for name in public
        )
    }
]
'''


def _registered(opened: str, made: str, parts: Sequence[Mapping[str, str]], library: str | None) -> str:
    path = "None" if library is None else f'str(Path(__file__).parent / "{library}")'
    lines = [f"_package = {opened}(", f'    "{NAMESPACE}",', f"    {path},", "    ["]
    for fields in parts:
        lines += [f"        {made}("]
        lines += [textwrap.indent(f"{name}={value},", " " * 12) for name, value in fields.items()]
        lines += ["        ),"]
    return "\n".join([*lines, "    ],", ")"])


def _function(op: Op, name: str) -> str:
    """The op as a plain function with its own signature."""
    signature = op.signature
    family = op._families.default
    out = family.out.signature.mutated if family.out is not None else ()
    parameters: list[str] = []
    for argument in signature.arguments:
        if argument.keyword_only and "*" not in parameters:
            parameters.append("*")
        text = f"{argument.name}: {_annotation(argument.type)}"
        parameters.append(f"{text} = {literal(argument.default)}" if argument.has_default else text)
    results = _returned(signature)
    if out:
        parameters += [] if "*" in parameters else ["*"]
        parameters.append(f"out: {results} | None = None")
    lines = [f"def {name}({', '.join(parameters)}) -> {results}:"]
    if op.__doc__:
        lines.append(textwrap.indent(f'"""{_docstring(op.__doc__)}"""', "    "))
    given = ", ".join(each.name for each in signature.arguments)
    if signature.mutated:
        return "\n".join([*lines, f'    return _package.change("{name}", [{given}])'])
    call = ", ".join(f"{each.name}={each.name}" if each.keyword_only else each.name for each in signature.arguments)
    if out:
        own = [each.name for each in out]
        filled = [f"{each}={'out' if len(own) == 1 else f'out[{i}]'}" for i, each in enumerate(own)]
        lines += [
            "    if out is not None:",
            f"        torch.ops.{NAMESPACE}.{name}_out({', '.join([*([call] if call else []), *filled])})",
            "        return out",
        ]
    return "\n".join([*lines, f"    return torch.ops.{NAMESPACE}.{name}({call})"])


def _annotation(type: str) -> str:
    if type.endswith("?"):
        return f"{_annotation(type[:-1])} | None"
    if type.endswith("[]"):
        return f"list[{_annotation(type[:-2])}]"
    return _TYPES.get(type, type)


def _returned(signature: Signature) -> str:
    if signature.returns_list:
        return "list[torch.Tensor]"
    count = len(signature.mutated) or len(signature.results)
    return "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"


def _docstring(text: str) -> str:
    return inspect.cleandoc(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _dictionary(values: Mapping[str, Any]) -> str:
    return "\n".join(["{", *(f"    {key!r}: {value!r}," for key, value in values.items()), "}"])
