"""The server's own clean samples, for layers that make use of them."""

from server_app.config import RunConfig
from tasks import Split, load_task
from tasks.errors import TaskError


def validation_data(config: RunConfig, wanted_by: str) -> Split:
    """Return the server's validation set; an error that says who wants it if there is none."""
    data = load_task(config.task_spec()).server_data().validation
    if not len(data):
        raise TaskError(
            f"data.validation-share = {config.data.validation_share}: it leaves no sample to the "
            f"server, which {wanted_by} needs"
        )
    return data
