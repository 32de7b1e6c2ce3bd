"""What both sides share: config, methods, learning, tasks, records on the wire and on disk."""

import os

# Threads of OpenMP, which torch uses, otherwise spin while they wait: several processes on the same
# cores (simulated clients, a small device) then slow each other down a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
