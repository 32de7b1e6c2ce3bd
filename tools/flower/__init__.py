"""Starting Flower: its environment, its command line, a SuperLink of one's own."""
