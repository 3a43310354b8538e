"""Attention within frames: the order that code is causal in may be one that it never attends over."""

from __future__ import annotations

from mha_lint.facts.batch import maps_to
from mha_lint.facts.bench import Bench
from mha_lint.sites.site import Site

FEWEST = 4
"""An input of as many axes has two of positions beside its samples and channels."""


def leaves_frames_apart(bench: Bench, site: Site) -> bool:
    """Return whether an input has an axis of positions (time) that attention leaves alone.

    So a causal model of video attends over the pixels of each frame: nothing of a later frame
    reaches an earlier one, and pixels have no order that could be meant.
    """
    q = site.q
    if q is None or q.source is None or q.source.kind == "input":
        return False  # heads of ready-made queries are no frames
    above = bench.dependence.ancestors([q.source.node])
    for placeholder in bench.recording.placeholders:
        value = bench.replay.base(placeholder)
        if placeholder not in above or not value.is_floating_point() or value.dim() < FEWEST:
            continue
        for axis in range(1, value.dim()):
            held = maps_to(bench, placeholder, axis, q.source)
            if held and not held & q.position_axes:
                return True
    return False
