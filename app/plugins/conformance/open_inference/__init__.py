"""Check the Open Inference Protocol over REST and gRPC."""
