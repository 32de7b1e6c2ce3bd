"""The command ``forager``: one file per command."""
