"""What keeps a verdict current while writes go on; tables, rules and guards plug into it."""
