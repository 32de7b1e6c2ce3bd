"""Clustered learning: which clients train a model together. Numpy in, numpy out."""
