"""One config per method in which it visibly works, and its baseline, on data of the package."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Demo:
    """A method, where it helps."""

    about: str  # the situation, in one line
    config: str  # the run config of the situation
    # method, without: what is set for the method, and what for its baseline
    method: str
    without: str
    baseline: str  # what the baseline is, in words
    look: str  # what to look at in the report
    own: bool = False  # whether clients' accuracy on their own data is what counts


DEMOS: dict[str, Demo] = {
    "forager": Demo(
        about="40 % of the labels of 30 clients with different classes are wrong.",
        config=(
            "noise='closed-set' corruption.rate=0.4 split.alpha=0.3 num-clients=30 "
            "clients-per-round=10 num-server-rounds=30 local-epochs=2 "
            "data.client-test-share=0.2 fraction-evaluate=1.0 evaluate-every=5"
        ),
        method="strategy='forager'",
        without="strategy='fedavg'",
        baseline="FedAvg",
        look=(
            "'What the run decided': from which round on samples count by what the model makes of "
            "their labels. The summary: accuracy on clients' own data, and bytes."
        ),
        own=True,
    ),
    "cosage": Demo(
        about="Each of 50 clients holds a single class of digits, and 5 train per round.",
        config=(
            "partition='pathological' split.classes-per-client=1 num-clients=50 "
            "clients-per-round=5 num-server-rounds=40"
        ),
        method="strategy='cosage'",
        without="strategy='cosage' client-selector='random'",
        baseline="random choice",
        look=(
            "'Accuracy': random choice falls back whenever a class is missing from a round. "
            "'Who was chosen when': with CosAge nobody waits long."
        ),
    ),
    "gcfl": Demo(
        about="40 % of the clients' labels are wrong, and they can train on a tenth of their data.",
        config=(
            "noise='closed-set' corruption.rate=0.4 partition='iid' num-clients=20 "
            "clients-per-round=10 coreset.budget=0.1 num-server-rounds=30"
        ),
        method="strategy='gcfl'",
        without="strategy='gcfl' data-selector='random'",
        baseline="random coresets",
        look="'What clients trained on': the share of clean samples in the coresets.",
    ),
    "ode": Demo(
        about="Digits stream by at 20 devices, each of which can store 10 of them.",
        config=(
            "partition='dirichlet' split.alpha=0.3 num-clients=20 clients-per-round=10 "
            "stream.capacity=10 num-server-rounds=40"
        ),
        method="strategy='ode'",
        without="strategy='ode' data-selector='reservoir'",
        baseline="reservoir sampling",
        look=(
            "'What clients trained on': what the stores hold of each class. ODE plans who stores "
            "what; a reservoir keeps what happens to come."
        ),
    ),
    "auxo": Demo(
        about="Two groups of clients give the same digits different labels.",
        config=(
            "groups.kind='label-permutation' groups.count=2 partition='iid' fraction-evaluate=1.0 "
            "data.client-test-share=0.2 num-clients=20 clients-per-round=20 num-server-rounds=40"
        ),
        method=(
            "strategy='auxo' auxo.first-clustering=2 auxo.first-split=4 auxo.min-participants=7"
        ),
        without="strategy='fedyogi'",
        baseline="fedyogi, one model",
        own=True,
        look="'Who shares a model': in round 4 the cohort splits into the two groups, and accuracy "
        "jumps.",
    ),
    "ios": Demo(
        about="Two groups of clients hold different classes of digits.",
        config=(
            "partition='class-groups' groups.count=2 fraction-evaluate=1.0 "
            "data.client-test-share=0.2 num-clients=20 clients-per-round=20 num-server-rounds=30"
        ),
        method="strategy='ios' ios.every=5",
        without="strategy='fedavg'",
        baseline="fedavg, one model",
        own=True,
        look="'Who is like whom': two blocks, found from the positions of important parameters.",
    ),
}
