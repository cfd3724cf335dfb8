"""C++ for the CPU: the offline proposer's second back end. It reads the same traced graphs as ``kernels/blocks``."""
