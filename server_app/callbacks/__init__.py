"""What happens around the rounds: saving, stopping early, logging, reporting."""
