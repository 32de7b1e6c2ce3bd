"""Data that arrive over time."""
