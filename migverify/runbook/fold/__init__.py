"""How the events of a journal become the state of a run."""
