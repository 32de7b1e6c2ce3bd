"""Where Flower finds the ClientApp; why here, ``server.py`` says."""

import forager  # noqa: F401  (waits until the package knows where its folders are)
from forager.client_app.app import app

__all__ = ["app"]
