"""Whether any engine keeps a protocol: asked from outside, over HTTP or gRPC, clause by clause."""
