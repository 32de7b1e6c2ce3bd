"""The server side: configuration, round loop, artifacts and the local engine."""

import os
import sys
from pathlib import Path

# `selectors` is also a standard-library module, so the folder of that name is a source root, not a
# package: what lies below it is imported as `client_selectors`, ... An installed project has it on
# the path; inside a Flower bundle this does it.
_SELECTORS = str(Path(__file__).resolve().parent.parent / "selectors")
if _SELECTORS not in sys.path:
    sys.path.append(_SELECTORS)

# Threads of OpenMP, which torch uses, otherwise spin while they wait: several processes on the same
# cores (simulated clients, a small device) then slow each other down a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
