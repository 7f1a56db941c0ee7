"""The clauses of GRPS, over HTTP and over gRPC."""
