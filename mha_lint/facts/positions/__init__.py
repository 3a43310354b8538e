"""What positions do to queries, keys and scores: rotations, biases, shifts."""
