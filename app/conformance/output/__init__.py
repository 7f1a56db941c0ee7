"""A report, as terminals, programs, CI and browsers read it."""
