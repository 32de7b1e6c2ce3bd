"""Forager: the united strategy, most parts of which act only if the run shows a need for them."""

from .base import Method

METHODS = (
    Method(
        axis="data-selector",
        name="confirmed",
        about="all samples; weighted by the model's agreement once labels are found to be wrong",
        after="Gradient Coreset for Federated Learning (GCFL), and Arpit et al., 2017",
        core="selectors.data_selectors.confirmed_labels:LabelDoubt",
        layer="strategies.layers.confirmed_labels:ConfirmedLabels.of_run",
        hook="client_app.hooks.confirmed_labels:ConfirmedSamples",
        sends=("agreement of the model with its labels",),
    ),
    Method(
        axis="serving",
        name="best",
        about="the received model or a tuned one, by the client's held-out samples",
        after="Cheng, Chadha and Duchi, 2021: Fine-tuning is Fine in Federated Learning (FTFA)",
        core="core.learning.serving:served_models",
    ),
)

PRESETS = {
    "forager": {
        "client-selector": "turns",
        "data-selector": "confirmed",
        "cohorts": "conflict-test",
        "aggregator": "paced",
        "uplink": "compact",
        "downlink": "changes",
        "serving": "best",
    }
}

# What it sets instead if the run describes a stream: a key of ``stream.*`` that is not the default
STREAMED = {"forager": {"data-selector": "ode-balanced"}}
