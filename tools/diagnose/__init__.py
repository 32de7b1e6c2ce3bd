"""``forager diagnose``: measure a federation, then advise."""
