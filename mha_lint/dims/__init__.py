"""``mha-lint dims``: which head sizes do a config and a checkpoint give, and what contradicts what.

No model is built and no tensor data is read. `sources` opens files, `attention` finds the
projections by name and shape, `facts` turns shapes and config keys into relations, `solve` searches
whole numbers that satisfy them, `contradictions` names the fewest facts that cannot hold together.
Everything but `torch_state` works without torch.
"""
