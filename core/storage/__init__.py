"""Files that are replaced whole or not at all, and state as trees of arrays."""
