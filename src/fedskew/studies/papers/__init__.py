"""What the five papers printed, the studies that repeat it, and the two side by side."""
