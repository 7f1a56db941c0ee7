"""Export recorded inferences to formats of other tools."""
