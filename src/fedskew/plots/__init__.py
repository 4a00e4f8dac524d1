"""Pictures of runs and of federations."""
