"""Orienteer searches with language models and proves what it finds."""

__version__ = "0.1.0"
