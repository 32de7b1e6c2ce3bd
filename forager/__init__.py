"""Forager: who trains, on which data, and with whom, in every round of federated learning.

In a checkout and in a Flower bundle the folders stand beside this one; in a wheel, below it. Either
way they are imported under one name, as in ``forager.strategies`` or ``forager.selectors``.
"""

from pathlib import Path

__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
if not (_HERE / "core").is_dir():
    __path__.append(str(_HERE.parent))
