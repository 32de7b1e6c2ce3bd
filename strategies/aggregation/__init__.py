"""How updates become a model."""
