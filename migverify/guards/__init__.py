"""Guards: standing questions, answered pass, fail or inconclusive with value, threshold and query."""
