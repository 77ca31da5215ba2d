"""What the server counts and logs."""
