"""The client side of methods: one hook each, called before and after local training."""
