"""Read and write tensors, JSON and protobuf in the forms that several protocols share."""
