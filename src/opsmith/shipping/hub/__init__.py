"""Kernels for the Hugging Face Hub: what `opsmith build --hf-kernel` writes, and the package `kernels` loads."""
