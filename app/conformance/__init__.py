"""Whether any engine keeps a protocol: asked from outside over HTTP, clause by clause."""
