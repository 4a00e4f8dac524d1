"""What a run records: its folder, its metrics, its diagnostics."""
