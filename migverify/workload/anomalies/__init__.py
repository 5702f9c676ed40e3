"""What transaction histories prove: which anomalies a server permitted, by Adya's dependency graph."""
