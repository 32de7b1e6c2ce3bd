"""Who is there, what is under way, who said what: the one handle of all layers."""
