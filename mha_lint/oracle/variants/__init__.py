"""One file per stage of attention: how that stage is due, and how it is known to go wrong."""
