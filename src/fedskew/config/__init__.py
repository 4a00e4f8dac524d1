"""Experiments as values: tables of names, JSON, command-line words."""
