"""Server-side strategies: layers that wrap any Flower strategy and change as little as they can."""
