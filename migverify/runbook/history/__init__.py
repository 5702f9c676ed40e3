"""What the journals of earlier runs say: clean drills, readiness, scores, comparison."""
