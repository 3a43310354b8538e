"""One call in training mode with a backward pass: which parameters get a gradient, and where it ends."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_lint.capture.copies import Copied, copied
from mha_lint.capture.walk import tensors_in
from mha_lint.facts.assigned import statement_at
from mha_lint.model.source import Span
from mha_lint.targets.subject import Subject

SEED = 5
_LIBRARY = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parents[1])


class NoGradientError(Exception):
    """Nothing can be learned from this call; the text says why."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of one random projection of all outputs, by parameter; None where there is none.

    ``trainable``: the parameters that require one.
    """

    found: dict[str, Tensor | None]
    trainable: frozenset[str]

    def of(self, name: str) -> Tensor | None:
        """Return the gradient of the parameter `name`."""
        return self.found.get(name)

    @property
    def largest(self) -> float:
        """Return the largest element of all gradients."""
        return max((float(g.abs().max()) for g in self.found.values() if g is not None), default=0)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a call is made with: its inputs, in the order of the recording, and parameters by name.

    At unit scale, as no softmax is saturated there.
    """

    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, Tensor]


def gradients(subject: Subject, drawn: Drawn) -> Gradients:
    """Call a fresh copy of `subject` in training mode with what was `drawn`, and go backwards.

    Raises:
        NoGradientError: no output asks for a gradient, as behind ``torch.no_grad``, or the backward
            pass fails, as where something it needs was changed in place.
        Exception: whatever the user's code raises.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's call is repeated; its warnings are no news
        return _gradients(subject, drawn)


def _gradients(subject: Subject, drawn: Drawn) -> Gradients:
    module, outputs = _called(subject, _copy(subject), drawn, nullcontext())
    kept = [y for y in outputs if y.is_floating_point() and y.requires_grad]
    if not kept:
        raise NoGradientError("no output asks for a gradient")
    generator = torch.Generator().manual_seed(SEED)
    with torch.enable_grad():
        total = sum(
            (y * torch.randn(y.shape, generator=generator).to(y)).sum().float() for y in kept
        )
        assert isinstance(total, Tensor)
        try:
            total.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        except RuntimeError as error:
            raise NoGradientError(f"the backward pass itself fails: {error}") from error
    own = dict(module.named_parameters())
    return Gradients(
        {name: p.grad for name, p in own.items()},
        frozenset(name for name, p in own.items() if p.requires_grad),
    )


def _copy(subject: Subject) -> Copied:
    """Return module and arguments of `subject` apart from its own."""
    copy = copied(subject.module, subject.args, subject.kwargs)
    if copy.subject is subject.module:  # it cannot be copied
        other = subject.rebuilt()
        return Copied(other.module, other.args, other.kwargs)
    return copy


def _called(
    subject: Subject, copy: Copied, drawn: Drawn, mode: AbstractContextManager[object]
) -> tuple[nn.Module, list[Tensor]]:
    """Call `copy` under `mode`, and return its module and the tensors that come out."""
    module = copy.subject
    assert isinstance(module, nn.Module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            new = drawn.parameters.get(name)
            if new is not None and new.shape == parameter.shape:
                parameter.copy_(new)
        held = {id(x): x for _, x in tensors_in((copy.args, copy.kwargs))}
        for old, fresh in zip(held.values(), drawn.inputs, strict=False):
            if old.is_floating_point() and old.shape == fresh.shape:
                old.data = fresh.to(old)
    with subject.environment():
        module.train()
        torch.manual_seed(SEED)
        with torch.enable_grad(), mode:
            result = module(*copy.args, **copy.kwargs)
    return module, [y for _, y in tensors_in(result)]


@dataclass(frozen=True, slots=True)
class Cut:
    """A call whose result asks for no gradient though what it reads does: a detach, a no_grad.

    ``parameters``: those whose gradient ends there.
    """

    parameters: frozenset[str]
    span: Span | None


def cuts(subject: Subject, drawn: Drawn) -> list[Cut]:
    """Return where gradients end in one call of a fresh copy of `subject` in training mode."""
    watch, copy = _Watch(), _copy(subject)
    assert isinstance(copy.subject, nn.Module)
    watch.follow(copy.subject)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _called(subject, copy, drawn, watch)
    except Exception:  # user code: what was seen up to there counts
        return watch.cuts
    return watch.cuts


class _Watch(TorchFunctionMode):
    """Follows which parameters each tensor is made from, and notes where gradients end."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[Cut] = []
        self._names: dict[int, tuple[Tensor, frozenset[str]]] = {}

    def follow(self, module: nn.Module) -> None:
        """Know the parameters of `module`."""
        for name, parameter in module.named_parameters():
            self._names[id(parameter)] = (parameter, frozenset([name]))

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` and look at what it reads and makes."""
        result = func(*args, **(kwargs or {}))
        read = [x for _, x in tensors_in((args, kwargs or {}))]
        names = self._union(read)
        if names:
            made = [y for _, y in tensors_in(result) if y.is_floating_point()]
            asks = any(x.requires_grad for x in read)
            if asks and made and not any(y.requires_grad for y in made):
                self.cuts.append(Cut(names, _user_line(sys._getframe(1))))
            for y in made:
                self._names[id(y)] = (y, names | self._union([y]))
        return result

    def _union(self, tensors: Iterable[Tensor]) -> frozenset[str]:
        known = (self._names.get(id(x)) for x in tensors)
        return frozenset().union(*(found[1] for found in known if found is not None))


def _user_line(frame: FrameType | None) -> Span | None:
    """Return the innermost line that is neither torch's nor ours."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_LIBRARY, _OWN, "<")):
            return statement_at(path, frame.f_lineno)
        frame = frame.f_back
    return None
