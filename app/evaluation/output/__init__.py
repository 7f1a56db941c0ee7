"""A report, as terminals, programs and browsers read it."""
