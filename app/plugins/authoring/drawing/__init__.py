"""Records and heat maps drawn on images, and the colours of labels."""
