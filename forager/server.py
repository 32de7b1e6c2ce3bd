"""Where Flower finds the ServerApp.

It is in the package itself, not in a folder beside it: while one thread imports the package,
another one that looks for a folder does not wait until the package knows where its folders are.
"""

import forager  # noqa: F401  (waits for that)
from forager.server_app.app import app

__all__ = ["app"]
