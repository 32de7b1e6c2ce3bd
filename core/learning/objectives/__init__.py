"""What a client minimises: cross-entropy, and what methods add to it."""
