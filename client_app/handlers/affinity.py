"""Handler of ``query.affinity``: the cohorts that suit a client, before it is matched to one."""

from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..hooks.auxo import AffinityRecords


def answer_affinities(batch: ClientBatch) -> Replies:
    """Take in the feedback that came, and send the records: the affinity request (section 5.1)."""
    records = AffinityRecords(batch.config)
    for row in batch.rows:
        records.before_one(row)
        records.request(row)
    batch.close()
    return batch.replies()
