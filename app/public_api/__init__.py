"""What users import: the module `charioteer`, and models without a server."""
