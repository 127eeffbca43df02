"""The Python tier: an operator attached to the dispatcher by Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import autocast, gradients

if TYPE_CHECKING:
    from .operator import Operator


class Attachment:
    tier = "python"

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.call = gradients.direct(operator)
        self._autocast: set[str] = set()
        bind = operator.signature.bind

        def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            return gradients.kernel(operator, keyset, bind(args, kwargs))

        operator.library.impl(operator.base, autograd, "Autograd", with_keyset=True)
        if operator.signature.mutated:

            def bump(keyset: Any, *args: Any, **kwargs: Any) -> None:
                gradients.bump_versions(operator, keyset, bind(args, kwargs))

            operator.library.impl(operator.base, bump, "ADInplaceOrView", with_keyset=True)
        self.update()

    def update(self) -> None:
        for device in self._operator.autocast.keys() - self._autocast:
            self._autocast.add(device)
            self._attach_autocast(device)

    def close(self) -> None:
        pass

    def _attach_autocast(self, device: str) -> None:
        operator = self._operator
        bind = operator.signature.bind

        def kernel(*args: Any, **kwargs: Any) -> Any:
            bound = autocast.cast(operator, device, bind(args, kwargs))
            with torch._C._ExcludeDispatchKeyGuard(autocast.KEYS):
                return operator.call_arranged(bound)

        operator.library.impl(operator.base, kernel, autocast.KEY_NAMES[device])
