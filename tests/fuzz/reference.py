"""The reference: attention by plain einsum over the weights of a composed module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.fuzz.compose import Case
from tests.fuzz.extras import biased, turned
from tests.fuzz.plan import Plan


@contextmanager
def _double() -> Iterator[None]:
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            yield
    finally:
        torch.set_default_dtype(kept)


def departure(case: Case) -> float:
    """Return how far the module's output in float64 lies from attention with the same weights."""
    namespace: dict[str, Any] = {}
    exec(compile(case.text, "case.py", "exec"), namespace)
    namespace |= {"collect": lambda *args, **kwargs: (args, kwargs)}
    with _double():
        made = eval(case.build, namespace)
        args, _ = eval(f"collect({case.call})", namespace)
        if isinstance(made, nn.Module):
            _disturb(made.eval())
            m = (
                made
                if case.attention == "m"
                else made.get_submodule(case.attention.removeprefix("m."))
            )
            read: Any = m
        else:
            bound = inspect.signature(made).bind(*args).arguments
            read = SimpleNamespace(**bound)
        out = made(*args)
        out = out[0] if isinstance(out, tuple) else out
        right = _whole(case, made, read, args)
    if out.shape != right.shape:
        return float("inf")
    return float((out - right).abs().max())


def _disturb(module: nn.Module) -> None:
    """Draw the biases too, which some modules start at zero."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.3)


def _whole(case: Case, made: Any, m: Any, args: tuple[Any, ...]) -> Tensor:
    x = args[0]
    residual = case.plan.names.get("residual")
    if residual == "before":
        return Tensor(x + attention(case.plan, m, (made.norm(x), *args[1:])))
    if residual == "after":
        return Tensor(made.norm(x + attention(case.plan, m, args)))
    return attention(case.plan, m, args)


def attention(p: Plan, m: Any, args: tuple[Any, ...]) -> Tensor:
    """Return attention over `args` with the weights of `m`."""
    given = {
        key: tuple(eval(text, {"m": m, "torch": torch}) for text in pair)
        for key, pair in p.weights.items()
    }
    x = args[0].transpose(0, 1) if p.time_first else args[0]
    source = x
    if p.cross:
        source = args[1].transpose(0, 1) if p.time_first else args[1]
    made = {}
    for role, tensor in (("q", x), ("k", source), ("v", source)):
        weight, bias = given[role]
        made[role] = torch.einsum("btm,hdm->bhtd", tensor, weight)
        if isinstance(bias, Tensor):
            made[role] = made[role] + bias[:, None, :]
    times = p.heads // p.kv_heads
    group = torch.arange(p.heads) // times
    q, k = turned(p, m, "q", made["q"]), turned(p, m, "k", made["k"])
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k[:, group]) / p.dk**0.5
    scores = biased(p, m, scores) + _mask(p, args)
    context = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), made["v"][:, group])
    weight, bias = given["o"]
    out = torch.einsum("bhqd,hdm->bqm", context, weight)
    if isinstance(bias, Tensor):
        out = out + bias
    return out.transpose(0, 1) if p.time_first else out


def _mask(p: Plan, args: tuple[Any, ...]) -> Tensor:
    added = torch.zeros(p.batch, 1, p.tq, p.tk)
    if p.causal:
        places = torch.arange(p.tq)
        added = added.masked_fill(places[None, :] > places[:, None], -torch.inf)
    if not p.padding:
        return added
    given: Tensor = args[2 if p.cross else 1]
    if p.padding == "additive":
        return added + (given if p.names["mask axes"] == "qk" else given[:, None, None, :])
    if p.padding == "lengths":
        hide = torch.arange(p.tk) >= given[:, None]
    else:
        hide = ~given if p.padding == "keep" else given
    return added.masked_fill(hide[:, None, None, :], -torch.inf)
