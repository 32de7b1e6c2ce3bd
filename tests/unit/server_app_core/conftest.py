"""The fakes that these tests share with those of the strategies."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "strategies"))
