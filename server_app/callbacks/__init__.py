"""What happens around the rounds: saving, stopping early, telling, reporting."""
