"""Which methods to try first; beside `fedskew.advise` only the command uses it, so all within may change."""
