"""Load rule packs, select rules, run them over facts and honour suppressions."""
