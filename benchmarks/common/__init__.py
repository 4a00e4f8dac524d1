"""What benchmarks of several folders share: the work, the library at it, processes, and facts of a session."""
