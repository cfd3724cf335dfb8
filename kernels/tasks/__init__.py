"""Operators in KernelBench's form, the default tasks of the kernel synthesis. Each file stands for itself."""
