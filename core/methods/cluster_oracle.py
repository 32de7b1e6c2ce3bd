"""The cluster oracle: knows every client's labels; for comparison only."""

from .selector import Selector

METHODS = (
    Selector(
        name="cluster-oracle",
        about="one client from each cluster of label histograms, in turn (uses true labels)",
        core="selectors.client_selectors.cluster_oracle:ClusterOracle",
        sends=("labels",),
        needs=("classes",),
    ),
)
