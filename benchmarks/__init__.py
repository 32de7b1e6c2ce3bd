"""Speed measurements, sweeps and the tables of the papers."""
