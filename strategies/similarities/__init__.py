"""What makes clients alike."""
