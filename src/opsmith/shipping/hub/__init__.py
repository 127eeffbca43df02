"""Kernels for the Hugging Face Hub: what `opsmith build --hf-kernel` writes, and the package `kernels` loads."""

from __future__ import annotations

from .layout import Variant, write_hub

__all__ = ["Variant", "write_hub"]
