"""What steps, checks and guards can do and ask."""
