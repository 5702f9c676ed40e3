"""What drives a run: commands of people, the executor, guards, failures, the autopilot."""
