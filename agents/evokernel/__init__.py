"""EvoKernel: Triton kernels for PyTorch operators, proven by the target's own compiler."""
