"""Check any engine against a protocol from outside, over HTTP or gRPC."""
