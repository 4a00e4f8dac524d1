"""What the five papers and a third party printed, the studies that repeat it, and the two side by side."""
