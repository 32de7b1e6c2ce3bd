"""What a device keeps and how it works: state, stores, the resident worker."""
