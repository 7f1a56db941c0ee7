"""Commands on recorded and labelled data."""
