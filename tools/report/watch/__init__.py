"""Follow a run that is going on, wherever it runs: all it takes is the file of its events."""
