"""What simulated clients need of the data, checked before anything starts."""

from ...core.config import ConfigError, RunConfig
from ...core.config.combinations import check_simulated
from ...core.tasks import load_task


def check_partitions(config: RunConfig) -> None:
    """Refuse data that cannot be spread over the clients, or that leave them nothing to test on.

    Likewise settings that only real nodes have.
    """
    check_simulated(config)
    held = load_task(config.task_spec()).client_data(0, config.num_clients)
    if config.fraction_evaluate and not config.data.client_test_share and not len(held.test):
        raise ConfigError(
            f"fraction-evaluate = {config.fraction_evaluate}: clients have no test data; set "
            "data.client-test-share, such as 0.2, to hold out a share of theirs"
        )
