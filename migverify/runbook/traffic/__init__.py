"""Traffic by weights: drivers, the change of a share, what an access log shows."""
