"""From a replay's measured calls to the load that the target can carry within a service level."""
