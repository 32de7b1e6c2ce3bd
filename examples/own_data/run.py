"""Your own data: write them as one .npz file, then train on them by any strategy.

Here two hundred customers in six regions, each with its own habits; the region is the client.
"""

import tempfile
from pathlib import Path

import numpy as np
from forager.tools.engine.local import run_local


def write_data(path: Path) -> None:
    """Write samples, labels, and whose sample each is."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(6, 3))
    region = rng.integers(0, 6, 1200)
    x = rng.normal(size=(1200, 6)).astype(np.float32) + 0.5 * np.eye(6)[region]
    y = (x @ truth).argmax(1)
    np.savez(
        path,
        x_train=x[:1000],
        y_train=y[:1000],
        user_train=region[:1000],
        x_test=x[1000:],
        y_test=y[1000:],
    )


def main() -> None:
    """Train with clients chosen by CosAge, and by lot."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "customers.npz"
        write_data(data)
        for selector in ("random", "cosage"):
            result = run_local(
                {
                    "task": "npz",
                    "data.path": str(data),
                    "partition": "natural",
                    "num-clients": 6,
                    "clients-per-round": 2,
                    "num-server-rounds": 10,
                    "client-selector": selector,
                    "output-dir": folder,
                    "run-name": selector,
                }
            )
            print(f"{selector}: accuracy {result.rounds[-1]['accuracy']:.3f}")


if __name__ == "__main__":
    main()
