"""The client side: local training, data selection and summaries."""

import os
import sys
from pathlib import Path

# See server_app/__init__.py: `selectors` is a source root, not a package.
_SELECTORS = str(Path(__file__).resolve().parent.parent / "selectors")
if _SELECTORS not in sys.path:
    sys.path.append(_SELECTORS)

# Threads of OpenMP, which torch uses, otherwise spin while they wait: several processes on the same
# cores (simulated clients, a small device) then slow each other down a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
