"""Plain frozen data; imports nothing of the engine, nor torch, click or rich."""
