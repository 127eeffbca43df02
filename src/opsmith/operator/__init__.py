"""What an operator is: a reference, its kernels, and every part that torch can ask for."""
