"""What runs on the server only: the app, the loop over rounds, callbacks, the run folder."""
