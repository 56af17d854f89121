"""What the tests share: servers, databases, waiting for a fact instead of a second, and what a machine may lack."""
