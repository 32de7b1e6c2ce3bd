"""Tune a language model by LoRA on the texts of seven poets, choosing who trains.

A small transformer first learns English from three other poets. That body is frozen, and the
server and every client make it for themselves: only adapters of rank 4 travel. From this folder:

    forager run --local -c "task='lora_text:Poets' partition='natural' num-clients=7"
    python lora_text.py

The second compares ways to choose the two poets who train in each round.
"""

import tempfile
from functools import cache

import numpy as np
import torch
from forager.core.tasks import NextToken, TaskSpec
from forager.core.tasks.datasets.poems import ALPHABET, load
from forager.tools.engine.local import run_local
from torch import nn

WIDTH, HEADS, BLOCKS, RANK = 48, 4, 2, 4
BASE = 3  # poets whose texts the body has seen
WAYS = ("random", "local-loss")


class LoRA(nn.Module):
    """A frozen linear layer with a trained change of low rank."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both."""
        return self.base(x) + x @ self.down.T @ self.up.T


class Block(nn.Module):
    """Attention to what came before, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ask, self.tell = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to the states of a batch of texts."""
        batch, length, _ = x.shape
        parts = self.ask(self.first(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.tell(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Language(nn.Module):
    """A transformer that says which character comes next."""

    classes_last = True

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(ALPHABET), WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of all characters at all places."""
        states = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.blocks(states))


@cache
def body() -> dict[str, torch.Tensor]:
    """Train the whole model on the first poets; in practice, download one."""
    raw = load(TaskSpec("poems"))
    mine = np.flatnonzero(raw.user_train < BASE)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Language()
        optimiser = torch.optim.Adam(model.parameters(), 0.003)
        for _ in range(120):
            some = mine[torch.randint(len(mine), (24,)).numpy()]
            scores = model(torch.as_tensor(raw.x_train[some]))
            wanted = torch.as_tensor(raw.y_train[some])
            loss = nn.functional.cross_entropy(scores.transpose(1, 2), wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.state_dict()


class Poets(NextToken):
    """The next character in the texts of seven poets, each of whom is a client."""

    def data(self):
        """Return a quarter of the samples of all but the first poets, with their owners."""
        raw = load(TaskSpec("poems"))
        train, test = (np.flatnonzero(own >= BASE)[::4] for own in (raw.user_train, raw.user_test))
        return {
            "x_train": raw.x_train[train],
            "y_train": raw.y_train[train],
            "user_train": raw.user_train[train] - BASE,
            "x_test": raw.x_test[test],
            "y_test": raw.y_test[test],
        }

    def model(self):
        """Return the frozen body with new adapters in every block."""
        model = Language()
        model.load_state_dict(body())
        model.requires_grad_(False)
        for block in model.blocks:
            for name in ("ask", "tell", "wide", "narrow"):
                setattr(block, name, LoRA(getattr(block, name)))
        return model


def main(rounds: int = 8) -> None:
    """Print what each way to choose clients makes of the same rounds, and what travels."""
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            result = run_local(
                {
                    **{"task": "lora_text:Poets", "partition": "natural", "num-clients": 7},
                    **{"clients-per-round": 2, "num-server-rounds": rounds, "local-epochs": 1},
                    **{"optimiser.name": "adam", "learning-rate": 0.01, "client-selector": way},
                    **{"report": False, "output-dir": folder},
                }
            )
        found = [each["perplexity"] for each in result.rounds if "perplexity" in each]
        print(f"{way}: perplexity {found[0]:.2f} -> {found[-1]:.2f}")
    whole = sum(array.numel() for array in body().values())
    sent = sum(each.numel() for each in Poets().model().parameters() if each.requires_grad)
    print(f"{sent:,} numbers are sent beside {whole:,} that stay")


if __name__ == "__main__":
    main()
