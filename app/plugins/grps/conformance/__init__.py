"""Check GRPS, over HTTP and over gRPC."""
