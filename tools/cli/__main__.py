"""``python -m forager.tools.cli``, where the command itself is not installed."""

import sys

from .app import main

sys.exit(main())
