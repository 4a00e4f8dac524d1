"""Pictures of runs and of federations; only reports and the command draw them, so all within may change.

They need the extra ``plot`` (matplotlib).
"""
