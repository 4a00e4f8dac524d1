"""Experiments as values; names of tables, JSON and flags stay, how they are read may change."""
