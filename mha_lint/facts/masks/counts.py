"""Arguments that count the real positions of each sample, told by what else is done with them."""

from __future__ import annotations

import re
from collections.abc import Collection

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.once import once
from mha_lint.facts.masks.words import remarks, sources_of
from mha_lint.sites.dependence import is_number, op, operands
from mha_lint.targets.subject import Subject

READS = frozenset(["index", "getitem", "gather", "index_select", "take_along_dim"])
_LENGTHS = re.compile(r"len|(^|_)n_?valid|num_valid|sizes", re.IGNORECASE)
_OTHER = re.compile(
    r"pad|skip|offset|start|shift|past|prefix|prompt|begin|left|drop", re.IGNORECASE
)
_SAYS_LENGTH = re.compile(
    r"\b(?:lengths?|(?:real|valid|actual|true|unpadded|recorded|used)\b|"
    r"(?:number|count|amount) of|how many)",
    re.IGNORECASE,
)


def is_called_length(name: str) -> bool:
    """Return whether an argument is called after lengths."""
    return bool(_LENGTHS.search(name)) and "prefix" not in name.lower()


@once
def counts_real(bench: Bench, placeholder: Node) -> str:
    """Return what the call does with an argument (B,) as the number of real positions, "" if nothing.

    The state at position ``n - 1`` is read, which is the last one; or a sum of states is divided by it.
    """
    at = bench.recording.values.get(placeholder)
    if not isinstance(at, Tensor) or at.dim() != 1 or at.is_floating_point() or at.numel() < 2:
        return ""
    below = bench.dependence.descendants([placeholder])
    for node in sorted(below, key=bench.dependence.order.__getitem__):
        if op(node) in READS and _reads_last(bench, node, at, below):
            return "the state at that place less one is read, which is each sample's last real one"
        if op(node) == "div" and _divides(bench, node, at, below):
            return "a sum of states is divided by it"
    return ""


def says_length(subject: Subject, nodes: list[Node], name: str) -> str:
    """Return the comment by which the argument `name` counts real positions, "" if there is none."""
    if not name.isidentifier() or _OTHER.search(name):
        return ""
    word = re.compile(rf"\b{re.escape(name)}\b")
    for source in sources_of(subject, nodes):
        for line in remarks(source.text):
            found = word.search(line)
            if found is None:
                continue
            rest = line[found.end() :]
            if _SAYS_LENGTH.search(rest) and not _OTHER.search(rest):
                return line.strip()
    return ""


def _reads_last(bench: Bench, node: Node, at: Tensor, below: Collection[Node]) -> bool:
    states = node.all_input_nodes[0] if node.all_input_nodes else None
    if states is None or not is_number(bench.recording, states):
        return False
    return any(_each(bench.recording.values.get(n), at - 1) for n in operands(node) if n in below)


def _divides(bench: Bench, node: Node, at: Tensor, below: Collection[Node]) -> bool:
    if len(node.args) < 2:
        return False
    states, count = node.args[0], node.args[1]
    if not isinstance(states, Node) or not isinstance(count, Node) or count not in below:
        return False
    if not is_number(bench.recording, states) or not bench.dependence.parameters(states):
        return False
    value = bench.recording.values[states]
    return _each(bench.recording.values.get(count), at) and at.shape[0] in value.shape


def _each(value: object, wanted: Tensor) -> bool:
    """Return whether `value` holds for each sample the number that is `wanted` of it, and no other."""
    if not isinstance(value, Tensor) or value.dtype == torch.bool or value.numel() < wanted.numel():
        return False
    if not value.dim() or value.shape[0] != wanted.shape[0]:
        return False
    flat = value.reshape(value.shape[0], -1).double()
    return bool((flat == wanted[:, None].double()).all())
