"""Attention over packed texts: an interface, kernels of GPUs that take texts of any lengths, and SDPA."""
