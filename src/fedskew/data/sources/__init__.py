"""Where datasets come from: embedded, official files, tables, the hub."""
