"""Fine-tune a small transformer with LoRA adapters of unequal rank, aggregated by their products.

``python examples/lora_ranks.py`` makes a transformer and three clients on the spot. A phone has
room for rank 1, a laptop for 2, a server for 8. Each round, clients train their adapters; the mean
of their products is folded into the weights that all share. For comparison, adapters are padded
with zeros and A and B are averaged each for itself, as FedAvg would: the mean of something else.
"""

import copy

import numpy as np
import torch
from forager.selectors.adapters import stacked
from torch import nn

RANKS = (1, 2, 8)
WIDTH, LENGTH, WORDS = 32, 12, 20


class Transformer(nn.Module):
    """One encoder layer that says whether most words of a sentence are even."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of both answers."""
        found = self.layer(self.words(x) + self.places(torch.arange(LENGTH)))
        return self.head(found.mean(1))


def adapted(model: Transformer) -> dict[str, nn.Parameter]:
    """Return the weights that adapters change."""
    return {
        n: p for n, p in model.named_parameters() if p.ndim == 2 and ("layer" in n or "head" in n)
    }


def sentences(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sentences, and whether most of their words are even numbers."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(WORDS, (count, LENGTH), generator=generator)
    return x, (2 * (x % 2 == 0).sum(1) > LENGTH).long()


def trained(model: Transformer, data: tuple[torch.Tensor, torch.Tensor], rank: int, seed: int):
    """Return a client's adapters, by weight, after some steps."""
    torch.manual_seed(seed)
    weights = adapted(model)
    pairs = {
        n: (torch.zeros(w.shape[0], rank), torch.randn(rank, w.shape[1]) / rank)
        for n, w in weights.items()
    }
    leaves = [tensor.requires_grad_() for pair in pairs.values() for tensor in pair]
    optimiser = torch.optim.Adam(leaves, lr=0.01)
    for _ in range(20):
        changed = {n: w + pairs[n][0] @ pairs[n][1] for n, w in weights.items()}
        scores = torch.func.functional_call(model, changed, (data[0],))
        loss = nn.functional.cross_entropy(scores, data[1])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {n: (b.detach().numpy(), a.detach().numpy()) for n, (b, a) in pairs.items()}


def padded_mean(adapters, weights):
    """Return what averaging B and A for themselves makes of adapters padded with zeros."""
    most = max(RANKS)
    wide = [
        (
            np.pad(b, ((0, 0), (0, most - b.shape[1]))),
            np.pad(a, ((0, most - a.shape[0]), (0, 0))),
        )
        for b, a in adapters
    ]
    shares = np.asarray(weights) / np.sum(weights)
    return tuple(sum(w * pair[i] for w, pair in zip(shares, wide, strict=True)) for i in (0, 1))


def run(rounds: int = 6, seed: int = 0) -> dict[str, float]:
    """Return the accuracy by products and by padding, and how far padding is off."""
    torch.manual_seed(seed)
    start, test = Transformer(), sentences(1000, 99)
    clients = [sentences(200, 10 * seed + number) for number in range(len(RANKS))]
    found, off = {}, []
    for way in ("products", "padded"):
        model = copy.deepcopy(start)
        for server_round in range(rounds):
            own = [
                trained(model, data, rank, 1000 * seed + 10 * server_round + number)
                for number, (data, rank) in enumerate(zip(clients, RANKS, strict=True))
            ]
            for name, weight in adapted(model).items():
                pairs, counts = [each[name] for each in own], [len(data[1]) for data in clients]
                b, a = stacked(pairs, counts)
                exact = b @ a
                if way == "padded":
                    left, right = padded_mean(pairs, counts)
                    off.append(np.linalg.norm(left @ right - exact) / np.linalg.norm(exact))
                    exact = left @ right
                weight.add_(torch.from_numpy(np.asarray(exact, np.float32)))
        with torch.no_grad():
            found[way] = float((model(test[0]).argmax(1) == test[1]).float().mean())
    return {**found, "padding is off by": float(np.mean(off))}


if __name__ == "__main__":
    for number in range(3):
        print(
            f"seed {number}:", {name: round(value, 3) for name, value in run(seed=number).items()}
        )
