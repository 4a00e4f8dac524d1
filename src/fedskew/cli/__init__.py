"""The command ``fedskew``."""
