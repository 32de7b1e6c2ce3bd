"""What runs on a client: handlers of messages, the client halves of methods, what it keeps."""
