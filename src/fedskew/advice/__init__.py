"""Which methods to try first, from what was measured on federations like yours."""
