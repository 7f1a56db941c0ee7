"""Model folders of Triton, and advice for files that no runtime reads."""
