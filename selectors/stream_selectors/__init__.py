"""What a device with little storage keeps of a stream: pure rules with a capacity."""
