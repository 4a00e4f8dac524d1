"""What a run leaves behind: its folder, its metrics, its diagnostics."""
