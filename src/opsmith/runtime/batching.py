"""What an operator does under vmap: the author's rule, else the reference, batched by torch's own rules."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch._C._functorch import _add_batch_dim
from torch._functorch.autograd_function import custom_function_call_vmap_helper, unwrap_batched
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.utils import _pytree

from . import autocast

if TYPE_CHECKING:
    from .operator import Operator


_AUTOCAST_KEYS = functools.reduce(
    operator.or_,
    (torch._C.DispatchKeySet(k) for name, k in torch._C.DispatchKey.__members__.items() if name.startswith("Autocast")),
)
_VMAP_MODE = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchVmapMode)


def _outside_of_layers() -> Any:
    """The dispatcher state that a user's function sees, so that transforms can be entered again. While functorch
    processes one layer it excludes nearly every key, including ZeroTensor and Conjugate, without which tangents are
    read from no memory; only the autocast keys are the user's own setting."""
    include = torch._C._dispatch_tls_local_include_set() - _VMAP_MODE
    exclude = torch._C._dispatch_tls_local_exclude_set() & _AUTOCAST_KEYS
    return torch._C._ForceDispatchKeyGuard(include, exclude)


def kernel(target: Operator, args: tuple[Any, ...]) -> Any:
    interpreter: Any = retrieve_current_functorch_interpreter()
    if target.written_vmap is not None:
        positional, keyword = target.signature.arranged(args)
        return custom_function_call_vmap_helper(
            interpreter, target.written_vmap, target.overload, *positional, **keyword
        )
    if target.signature.mutated:
        return target.reference.composite(*args)

    level = interpreter.level()
    plain, in_dims = unwrap_batched(tuple(autocast.cast_where_enabled(target, args)), level)
    with interpreter.lower(), _outside_of_layers():
        if all(dim is None for dim in _pytree.tree_leaves(in_dims, is_leaf=lambda dim: dim is None)):
            return target.call_arranged(plain)
        if target.derived_vmap is not None:
            results = target.derived_vmap(target, plain, in_dims)
            if results is not NotImplemented:
                return _wrapped(results, level)
        batched = torch.vmap(target.reference.transformed, in_dims, randomness=interpreter.randomness())
        results = batched(*plain)
    return _wrapped(results, level)


def _wrapped(results: Any, level: int) -> Any:
    if isinstance(results, (tuple, list)):
        return type(results)(_add_batch_dim(result, 0, level) for result in results)
    return _add_batch_dim(results, 0, level)
