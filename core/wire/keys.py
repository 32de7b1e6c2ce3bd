"""Names of the records in a message and of the entries that both sides read."""

# Records. Flower's strategies expect one ArrayRecord and one MetricRecord in a reply.
ARRAYS = "arrays"
METRICS = "metrics"
CONFIG = "config"
CLIENT = "client"  # ConfigRecord in every reply: who answered
SPARSE = "sparse"  # ConfigRecord that replaces ARRAYS where the uplink is sparse
CONTROL = "control"  # ArrayRecord of SCAFFOLD: the server's variate down, a client's change up
TARGETS = "targets"  # ArrayRecord to a client that is to choose a coreset: gradients to match
CORESET = "coreset"  # ConfigRecord in the reply of one that trained on a coreset

# Entries of ARRAYS' companion records
ROUND = "server-round"
RUN = "run"  # which run a message is of; it stays the same when the run is resumed
FROZEN = "frozen"  # checksum of the arrays that never travel
SCALE = "scale"  # what inputs are scaled by, where they are
NUM_EXAMPLES = "num-examples"
TRAIN_LOSS = "train_loss"  # Flower's q-FedAvg spells it with an underscore
SECONDS = "seconds"
CLIENT_KEY = "key"
NOTE = "note"  # entry of CLIENT: what a client wants its operator to know
VERSIONS = "versions"  # entry of CLIENT in the answer to IDENTIFY
TAGS = "tags"  # likewise, what its node config says
ANSWERS = "answers"  # likewise, where a client cannot answer everything: what it can
PAYLOAD = "payload"
DENSITY = "uplink-density"
VALUES = "uplink-values"

# What a selector may want to know of a client (entries of METRICS in its answer)
SIMILARITY = "similarity"
LOSS = "loss"
HISTOGRAM = "histogram"
AGREEMENT = "agreement"  # rides on training replies: share of labels that the model confirms
BLEND = "blend"  # entry of CONFIG: whether clients train on means of two of their samples
DOUBT = "doubt"  # entry of CONFIG: how sharply clients weigh doubtful labels; 0: only look at them
PROBED = "probed"  # of how many samples the single step of an examined client was
AS_IT_CAME = "as-it-came"  # entry of CONFIG and of METRICS in an evaluation: without tuning
UTILITY = "utility"  # rides on training replies: Oort's |B| sqrt(mean loss^2)

# Entries of METRICS in the answer to ASK_MOMENTS: one number per feature of the inputs
MEAN = "mean"
SPREAD = "spread"

# Entries of CONFIG in a query for it, and of training messages where answers ride on replies
WANTS = "wants"
REFERENCE = "reference"

# What clustered learning asks clients, and what it sends them
LOSSES = "losses"
STEPS = "steps"
WORK = "work"  # ConfigRecord with the steps of one client, or its share of the usual ones
SHARE = "share"
AFFINITY = "affinity"  # ConfigRecord: feedback to a client, and its records: its request

# IOS: the indices of the parameters that matter most to a client (ConfigRecord)
SUPPORT = "support"
SIZE = "k"  # entry of SUPPORT: a client's own K, or the mean of all, told to clients
SIGNATURE = "signature"

# Streams: who stores what (from the server), how fast labels come (from clients), gradients (both)
PLAN = "plan"
ESTIMATE = "estimate"

# A question to a client whose app has train functions only: a training message with this record
QUESTION = "question"
KIND = "kind"
SETTINGS = "settings"  # entry of CONFIG for such clients: the run config as JSON

# Kinds of messages beside Flower's own "train" and "evaluate"
IDENTIFY = "query.identify"
SUMMARY = "query.summary"
ASK_LOSSES = "query.losses"
ASK_UPDATE = "query.update"
INGEST = "query.ingest"
ASK_SUPPORT = "query.support"
ASK_MOMENTS = "query.moments"
ASK_AFFINITY = "query.affinity"
