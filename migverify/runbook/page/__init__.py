"""How a run is shown: the live page, the report, metrics."""
