"""Who is told what, and whether it was delivered."""
