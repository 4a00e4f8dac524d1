"""Where datasets come from: embedded data, official files, tables, the hub."""
