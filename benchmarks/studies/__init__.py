"""Experiments whose runs are kept in the repository, and the pages that are made from them."""
