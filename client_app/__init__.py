"""The client side: local training, data selection and summaries."""

import sys
from pathlib import Path

# See server_app/__init__.py: `selectors` is a source root, not a package.
_SELECTORS = str(Path(__file__).resolve().parent.parent / "selectors")
if _SELECTORS not in sys.path:
    sys.path.append(_SELECTORS)
