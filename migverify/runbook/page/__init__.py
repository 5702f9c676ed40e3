"""How a run is shown: the live page, reports, the checklist, an export."""
