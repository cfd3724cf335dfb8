"""Latency: the model of Ascend kernels (E2), the roofline estimate for GPUs (E2), checks of measured times."""
