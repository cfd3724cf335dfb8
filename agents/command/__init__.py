"""The parts of the ``agent`` command: its options, its commands, and how they print.

``cli.py`` is the front: it imports these only after signals are in hand, so that Ctrl-C is one line even while Python
still loads them.
"""
