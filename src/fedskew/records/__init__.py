"""What a run records; files of format 2 are read for ever, and only their readers and writers here know them."""
