"""Similarities of clients."""
