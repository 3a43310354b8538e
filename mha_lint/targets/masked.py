"""Give the masks that a call may leave out: what ``mask=None`` switches off is never seen otherwise."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mha_lint.targets.current_sizes import batch_of, build_expression, read_sizes
from mha_lint.targets.infer.bodies import function_tree
from mha_lint.targets.infer.chance import has_nan
from mha_lint.targets.infer.guesses import render_input
from mha_lint.targets.infer.input_names import MASK
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.module_needs import module_dtype
from mha_lint.targets.infer.scheme import SCHEMES, Scheme
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.make import FileMaker, StageError, fresh
from mha_lint.targets.numbered import other_forms
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.tensors import tensors_in
from mha_lint.targets.timelimit import TimeLimitError, time_limit

OTHER = {"ones": "zeros", "zeros": "ones"}
LEAST = 1e-12
"""A gradient below this is rounding."""
MORE = 1.02
"""Less more than this is rounding: what a shift of all scores leaves to a bias of the keys."""
OF_HEADS = re.compile(r"heads?_mask")
"""What switches heads off acts on the weights on purpose, and sees nothing of positions."""
OPTIONS = 6
"""Ways to make one mask that are tried."""
SECONDS = 3.0


def masked(maker: FileMaker, subject: Subject) -> Subject:
    """Return `subject` called with each optional mask that its code takes, besides its own arguments.

    The masks hide nothing: one that was made up the wrong way round, so that it hides everything, is
    turned. One that the code does not take in any of the usual shapes is left out.
    """
    subject = _reckoned(maker, _turned(maker, subject))
    for name in _optional(subject):
        for call in _calls(subject, name):
            made = _tried(maker, dataclasses.replace(subject.recipe, call=call))
            if made is not None:
                if name in _loaded(subject.module) and not _read(made, name):
                    break  # it acts in another configuration, or beside another argument
                made.notes = subject.notes
                subject = _reckoned(maker, _turned(maker, made))
                break
    return subject


def _reckoned(maker: FileMaker, subject: Subject) -> Subject:
    """Return `subject` with masks of numbers where its code reckons with them."""
    for call in other_forms(subject):
        made = _tried(maker, dataclasses.replace(subject.recipe, call=call))
        if made is not None and not has_nan(made):
            made.notes = subject.notes
            return made
    return subject


def _loaded(module: Any) -> set[str]:
    """Return the names that the code of the call reads: of a mask that it forgets there is none."""
    tree = function_tree(module.forward if isinstance(module, nn.Module) else module)
    if tree is None:
        return set()
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


class _Reads(TorchFunctionMode):
    """Notes whether an operation on tensors takes, or asks anything of, one of `tensors`."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.tensors, self.found = {id(t) for t in tensors}, False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = tensors_in([args, kwargs or {}])
        self.found = self.found or any(id(t) in self.tensors for t in given)
        return func(*args, **(kwargs or {}))


def _read(subject: Subject, name: str) -> bool:
    """Return whether the call of `subject` does anything with its argument `name`."""
    reads = _Reads(list(tensors_in(subject.kwargs[name])))
    try:
        with subject.environment(), torch.no_grad(), torch.random.fork_rng(devices=[]), reads:
            subject.module(*fresh(subject.args), **subject.kwargs)
    except (Exception, SystemExit):
        return True
    return reads.found


def _turned(maker: FileMaker, subject: Subject) -> Subject:
    """Return `subject` with each of its masks of ones, or zeros, turned where more of it then learns."""
    tree = ast.parse(f"f({subject.call})", mode="eval")
    assert isinstance(tree.body, ast.Call)
    values = [*tree.body.args, *(k.value for k in tree.body.keywords)]
    best = None
    for name, value in zip(subject.argument_names, values, strict=False):
        if not (MASK.search(name.lower()) and isinstance(value, ast.Call)):
            continue
        made = value.func
        if not (isinstance(made, ast.Attribute) and made.attr in OTHER):
            continue
        best = _learning(subject) if best is None else best
        made.attr = OTHER[made.attr]
        call = ast.unparse(tree.body).removeprefix("f(").removesuffix(")")
        other = _tried(maker, dataclasses.replace(subject.recipe, call=call))
        if other is not None and (learns := _learning(other)) > MORE * best:
            other.notes = subject.notes
            subject, best = other, learns
        else:
            made.attr = OTHER[made.attr]
    return subject


def _learning(subject: Subject) -> int:
    """Return how many elements of parameters and inputs move the outputs, 0 if that cannot be told."""
    module = subject.module
    own = list(module.parameters()) if isinstance(module, nn.Module) else []
    given = [t for t in tensors_in([subject.args, subject.kwargs]) if t.is_floating_point()]
    leaves = [t for t in (*own, *given) if t.is_leaf and t.is_floating_point()]
    asked = [t.requires_grad for t in leaves]
    try:
        with torch.enable_grad(), subject.environment(), torch.random.fork_rng(devices=[]):
            for leaf in leaves:
                leaf.requires_grad_(True)
            outputs = list(tensors_in(subject.module(*subject.args, **subject.kwargs)))
            made = [o for o in outputs if o.requires_grad and bool(torch.isfinite(o).all())]
            if not made:
                return 0
            total = torch.stack([(o * torch.rand_like(o)).sum() for o in made]).sum()
            found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    except (Exception, SystemExit):
        return 0
    finally:
        for leaf, before in zip(leaves, asked, strict=True):
            leaf.requires_grad_(before)
    return sum(int((gradient.abs() > LEAST).sum()) for gradient in found)


def _optional(subject: Subject) -> list[str]:
    """Return the names of the masks that may be left out, and were."""
    target = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    return [
        p.name
        for p in parameters_of(target)
        if p.default is None
        and p.name not in subject.argument_names
        and MASK.search(p.name.lower())
        and not OF_HEADS.search(p.name.lower())
    ]


def _calls(subject: Subject, name: str) -> Iterator[str]:
    """Yield calls that give the argument `name` too, in the sizes of `subject`."""
    scheme = _scheme_of(subject)
    inputs = Inputs(subject.module, scheme, read_sizes(subject, build_expression(subject)).width)
    sizes, dtype = inputs.sizes_at(scheme), module_dtype(subject.module)
    options = [g for g in inputs.options(name) if g.text != "None"][:OPTIONS]
    for guess in options:
        yield f"{subject.call}, {name}={render_input(guess, sizes, dtype)}"


def _scheme_of(subject: Subject) -> Scheme:
    """Return a scheme with the sizes that `subject` has."""
    now = read_sizes(subject, build_expression(subject))
    scheme = SCHEMES[0]
    length = _length_of(subject) or scheme.length
    heads = now.heads or scheme.heads
    return dataclasses.replace(
        scheme,
        batch=now.batch,
        length=length,
        source=length + 4,
        heads=heads,
        kv_heads=now.kv_heads or heads,
        head_dim=now.head_dim or scheme.head_dim,
    )


def _length_of(subject: Subject) -> int | None:
    tensors = list(tensors_in(list(subject.args)))
    if not tensors or tensors[0].dim() not in (2, 3):
        return None
    _, batch_axis = batch_of(tensors)
    return int(tensors[0].shape[1 - batch_axis])


def _tried(maker: FileMaker, recipe: Recipe) -> Subject | None:
    try:
        with time_limit(SECONDS):
            return maker.make(recipe)
    except (StageError, TimeLimitError):
        return None
