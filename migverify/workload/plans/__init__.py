"""Query plans of a capture's digests on both sides: read, reduced to what matters, judged."""
