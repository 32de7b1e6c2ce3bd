# mypy: ignore-errors
"""A round of fedjax: ``python benchmarks/peers/fedjax_rounds.py``."""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from work import BATCH, CLIENTS, PER_ROUND, RATE, ROUNDS, Turns, clients, softmax


def loss(parameters, batch, rng):
    """Return the mean cross-entropy of a mini-batch."""
    scores = jax.nn.log_softmax(batch["x"] @ parameters["weight"].T + parameters["bias"])
    return -jnp.take_along_axis(scores, batch["y"][:, None], 1).mean()


def main() -> None:
    """Train with everything switched off that is not training."""
    data = clients()
    held = [fedjax.ClientDataset({"x": x.numpy(), "y": y.numpy()}) for x, y in data]
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(RATE),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    state = algorithm.init({n: jnp.asarray(t.numpy()) for n, t in softmax().state_dict().items()})
    rng, key = np.random.default_rng(0), jax.random.PRNGKey(0)
    turns = Turns("fedjax", "fedjax", data)
    for number in range(ROUNDS + 1):
        turns.begin()
        chosen = rng.choice(CLIENTS, PER_ROUND, replace=False)
        keys = jax.random.split(jax.random.fold_in(key, number), PER_ROUND)
        cohort = [(i, held[i], k) for i, k in zip(chosen, keys, strict=True)]
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        turns.end()
    turns.show()


if __name__ == "__main__":
    main()
