"""Whether a service may cut over: the evidence of the run store, judged as one decision."""
