"""The methods that a run config can name."""
