"""Judging kernels: the gates of a candidate."""
