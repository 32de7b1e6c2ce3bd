"""Starting Flower: its environment, its command line, a private SuperLink."""
