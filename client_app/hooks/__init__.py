"""The client halves of methods: one hook each, called around local training."""
