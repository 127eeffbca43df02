"""Every error and warning a user of opsmith can meet: what happened, where, and how to fix it.

Each class names one mistake. Classes mix in TypeError, ValueError or RuntimeError where Python users would catch those.
A new class goes into the module of its subject; there is no list to add it to.
"""

from __future__ import annotations

from .base import *
from .building import *
from .calling import *
from .checking import *
from .declaring import *
from .emulating import *
from .launching import *
from .registering import *
from .scaffolding import *
from .toolchain import *

__all__ = sorted(
    name for name, value in vars().items() if isinstance(value, type) and issubclass(value, (Exception, Warning))
)
