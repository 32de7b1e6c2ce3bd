"""Local training, objectives, gradients and what is made of them, with torch."""
