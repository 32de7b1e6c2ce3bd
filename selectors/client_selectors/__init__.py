"""Who trains: pure rules that choose positions among candidates."""
