"""What an operator means, before any kernel: its signature, and its reference in every form that is derived from it."""

from __future__ import annotations

from ..toolchain.torch_release import require_torch

require_torch()  # everything that uses torch begins here
