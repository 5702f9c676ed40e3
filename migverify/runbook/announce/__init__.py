"""What is announced to whom, and whether it was delivered."""
