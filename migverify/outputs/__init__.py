"""What commands print with ``--json``: the list of outputs, and the types that their JSON schemas are made of."""
