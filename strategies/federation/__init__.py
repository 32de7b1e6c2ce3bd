"""The clients, messages in flight and answers of a run: the handle of all layers."""
