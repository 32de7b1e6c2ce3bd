"""What a client minimises: the loss of the problem, and the terms that methods add."""
