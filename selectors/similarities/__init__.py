"""How alike two updates, or two clients, are: pure functions of arrays."""
