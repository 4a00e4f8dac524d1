"""Conventions that split labelled rows over clients, one file a family; `fedskew.data.partitions` is their table."""
