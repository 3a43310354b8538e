"""What masks do to the scores: where they act, what they hide, and whether that fits."""
