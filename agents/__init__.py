"""Who decides: the one runtime, and the methods that run on it."""
