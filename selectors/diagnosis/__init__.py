"""What is wrong with a federation, estimated from the rounds of a run."""
