"""Building blocks: from a traced operator graph to a file of Triton kernels."""
