"""Pictures of runs and of federations. They need the extra ``plot`` (matplotlib)."""
