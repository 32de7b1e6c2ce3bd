"""A page that follows runs as they go: it reads their logs and draws the report's pictures."""
