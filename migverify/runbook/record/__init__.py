"""What a run leaves: its journal, who may write it, and where runs live."""
