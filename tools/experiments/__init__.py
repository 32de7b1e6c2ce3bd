"""Sweeps over configs and seeds, their records, statistics, tables, and comparisons."""
