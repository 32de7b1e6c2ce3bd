"""On which data a client trains: pure rules that choose samples, and how much each counts."""
