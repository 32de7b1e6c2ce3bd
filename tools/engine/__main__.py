"""``python -m forager.tools.engine -c "strategy='fedprox'"``."""

import sys

from .local import main

sys.exit(main())
