"""Studies: methods compared under equal conditions, and what may be concluded from their runs."""
