"""What a device with little storage keeps of a stream: pure rules that hold at most so many."""
