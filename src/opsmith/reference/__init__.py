"""What an operator means, before any kernel: its signature, and its reference in every form that is derived from it."""
