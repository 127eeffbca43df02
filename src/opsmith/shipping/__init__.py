"""Shipping ops: compiled ahead of time for machines without a compiler (`opsmith build`)."""
