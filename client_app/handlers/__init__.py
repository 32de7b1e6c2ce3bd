"""One handler per kind of message."""
