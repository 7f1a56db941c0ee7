"""One module for each format that labels are written in."""
