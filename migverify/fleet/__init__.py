"""Many services at once: what their stores and journals show, who may cut over tonight, and proofs within a budget."""
