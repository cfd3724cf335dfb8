"""Where things happen: execution in sandboxes, and the worlds of the methods."""
