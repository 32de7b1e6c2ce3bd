"""What the rounds of a run say about its federation."""
