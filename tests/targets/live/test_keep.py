"""Copies of arguments and modules."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mha_lint.targets.live.keep import CLONED, Clones, copy_of, keep, lively


@dataclass
class Cache:
    keys: list[torch.Tensor] = field(default_factory=list)


def test_containers_objects_and_shared_tensors() -> None:
    x, cache = torch.randn(2, 3), Cache()
    clones = Clones()
    made = clones.of([x, (x, None), {"cache": cache}, 3])
    assert made[0] is made[1][0]
    assert made[0] is not x
    cache.keys.append(x)
    assert made[2]["cache"].keys == []
    assert clones.intact()


def test_a_tensor_with_a_graph_is_cut_off() -> None:
    x = torch.randn(3, requires_grad=True) * 2
    made = Clones().of(x)
    assert made.grad_fn is None
    assert torch.equal(made, x.detach())


def test_a_large_tensor_is_looked_at_again() -> None:
    clones = Clones()
    x = torch.zeros(CLONED // 4 + 1)
    clones.of(x)
    assert clones.intact()
    x += 1
    assert not clones.intact()


def test_what_cannot_be_copied_is_shared() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.lock = threading.Lock()
            self.numbers = [1]

    module = Holds()
    made: Any = copy_of(module, keep(module, (), {}))
    assert made.lock is module.lock
    assert made.numbers == [1]
    assert made.numbers is not module.numbers
    assert made.linear.weight is not module.linear.weight
    assert torch.equal(made.linear.weight, module.linear.weight)


def test_a_weight_with_a_graph_and_the_owner_of_a_hook() -> None:
    class Trainer:
        def watch(self, *_: object) -> None: ...

        def __deepcopy__(self, _memo: object) -> Trainer:
            raise AssertionError("a hook's owner must not be copied")

    module = nn.Linear(3, 3)
    module.register_forward_hook(Trainer().watch)
    module.seen = module.weight * 2
    made: Any = copy_of(module, keep(module, (), {}))
    assert torch.equal(made.seen, module.weight.detach() * 2)


def test_only_an_input_that_is_the_same_everywhere_is_replaced() -> None:
    ones, mask = torch.ones(2, 5, 8), torch.zeros(5, 5)
    args, kwargs, changed = lively((ones, ones, mask), {"bias": mask})
    assert changed
    assert args[0] is args[1]
    assert args[0].std() > 0.5
    assert args[2] is mask
    assert kwargs["bias"] is mask
    noise = torch.randn(2, 5, 8)
    assert lively((noise, ones), {})[2] is False
