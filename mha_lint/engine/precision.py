"""What a site loses in the precision it runs in: MHA902's bound, applied in the cross-check.

What a site means is judged in float64, where rounding cannot be taken for a deviation. That says
nothing about the numbers that a half-precision module really gives. So the site itself, from q, k
and v to the context, is run in its own type on random operands, and its error against the float64
reference is held to twice that of a straightforward implementation in the same type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.capture import CaptureError, Replay, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.loss import worst_step
from mha_lint.facts.masks.levels import HIDES
from mha_lint.facts.order import NotArrangedError, order_of, score_operands, value_side
from mha_lint.facts.places import span_of
from mha_lint.model.source import Span
from mha_lint.oracle import DRAWS, Draw, Precision, exact_attention, precision_of
from mha_lint.sites.dependence import is_number
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in

Values = Mapping[Node, Tensor]

HALVES = (torch.float16, torch.bfloat16)
SAME = 1e-9
"""Part of the largest element up to which two float64 results are one function's."""
DROWNED = 1e5
"""An additive part this many times the scores leaves nothing of them to solve a scale from."""


class NotMeasuredError(Exception):
    """The precision of a site cannot be measured; the text says why."""


def dtype_of(setting: str | None, bench: Bench, site: Site) -> torch.dtype | None:
    """Return the type whose rounding the site is held to, None where float64 says it all.

    Without a `setting` that is the half type that the site computes in or has its parameters in,
    and the type of its operands where it goes through a half type on the way to the context.
    """
    if setting is None:
        own = own_dtype(bench, site)
        return own if own in HALVES or _narrows(bench, site) else None
    chosen: torch.dtype = getattr(torch, setting)
    return None if chosen is torch.float64 else chosen


def own_dtype(bench: Bench, site: Site) -> torch.dtype:
    """Return the half type among the site's operands, else among all parameters, else the operands' own."""
    values = bench.recording.values
    operands: list[torch.dtype] = [values[n].dtype for n in _operand_nodes(site)]
    held = [values[n].dtype for n in bench.recording.parameters.values()]
    return next((t for t in (*operands, *held) if t in HALVES), operands[0])


def _narrows(bench: Bench, site: Site) -> bool:
    """Return whether something between operands and context of `site` has fewer bits than float32."""
    return any(bench.recording.values[n].element_size() < 4 for n in steps_between(bench, site))


def steps_between(bench: Bench, site: Site) -> list[Node]:
    """Return the nodes from the operands of `site` to its contexts that hold floats, in order."""
    dependence = bench.dependence
    below = dependence.descendants(_operand_nodes(site)) - set(_operand_nodes(site))
    within = below & dependence.ancestors([m.context for m in site.all])
    numbers = [n for n in within if is_number(bench.recording, n)]
    return sorted(numbers, key=dependence.order.__getitem__)


class PrecisionBench:
    """One subject, ready to run its sites in any floating type on `device`."""

    def __init__(self, subject: Subject, bench: Bench, device: str) -> None:
        """Take `subject` and the bench of its recording; further recordings are made when needed."""
        self.subject, self.bench, self.device = subject, bench, device
        self._cast: dict[torch.dtype, Bench | str] = {}

    def measure(
        self, index: int, dtype: torch.dtype, *, factor: float = 1.0
    ) -> tuple[Precision, Span | None]:
        """Return what site `index` loses in `dtype`, and if that is too much, the step to blame.

        ``factor``: by how much the scale that is due exceeds the one that is found.

        Raises:
            NotMeasuredError: it does not run in `dtype`, or is not known to be softmax attention.
        """
        bench = self.bench
        if own_dtype(bench, bench.sites[index]) is not dtype:
            cast = self._in_dtype(dtype)
            if isinstance(cast, str):
                raise NotMeasuredError(cast)
            bench = cast
        try:
            site = _Attention(bench, bench.sites[index])
            replay = Replay(bench.recording, dtype=None, device=self.device)
            found = precision_of(site.draws(replay, dtype, site.scale() * factor))
            return found, site.most_lost(replay, dtype) if found.exceeded else None
        except NotArrangedError as error:
            raise NotMeasuredError(str(error)) from error
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            text = _first_line(f"{type(error).__name__}: {error}")
            raise NotMeasuredError(f"the site could not be run by itself: {text}") from error

    def _in_dtype(self, dtype: torch.dtype) -> Bench | str:
        if dtype not in self._cast:
            self._cast[dtype] = self._recorded(dtype)
        return self._cast[dtype]

    def _recorded(self, dtype: torch.dtype) -> Bench | str:
        """Record the subject cast to `dtype`; return why that is impossible."""
        try:
            with self.subject.environment(), torch.no_grad():
                other = self.subject.rebuilt()
                if isinstance(other.module, nn.Module):
                    other.module.to(dtype)
                for tensor in tensors_in((other.args, other.kwargs)):
                    if tensor.is_floating_point():
                        tensor.data = tensor.to(dtype)
                names = other.argument_names
                recording = record(other.module, other.args, other.kwargs, argument_names=names)
                bench = Bench.of(recording)
        except CaptureError as error:
            return f"the module does not run in it: {_first_line(str(error))}"
        except (Exception, SystemExit) as error:
            text = _first_line(f"{type(error).__name__}: {error}")
            return f"the module cannot be cast to it: {text}"
        if not recording.faithful.ok:
            return f"its recording is not faithful: {recording.faithful.why}"
        if [s.kind for s in bench.sites] != [s.kind for s in self.bench.sites]:
            return "the module takes another path there"
        return bench


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


class _Known:
    """Values of nodes, however they came about; see `arrange.Values`."""

    def __init__(self, values: Mapping[Node, Any]) -> None:
        """Know `values`."""
        self.values = values

    def base(self, node: Node) -> Any:
        """Return the value of `node`."""
        return self.values[node]


def _operand_nodes(site: Site) -> list[Node]:
    """Return the nodes that are contracted as q, k and v, each once."""
    found: list[Node] = []
    for member in site.all:
        if member.score is not None:
            found += [member.score.left, member.score.right]
        found.append(member.value.side(not member.weights_left)[0])
    return list(dict.fromkeys(found))


def _gains(bench: Bench, site: Site) -> dict[Node, float]:
    """Return what q and k are multiplied by before they meet, as powers of two, which round nothing.

    A product of large operands may overflow though the scale that follows makes it small again.
    """
    found: dict[Node, float] = {}
    for operand in (site.q, site.k):
        if operand is not None and operand.source is not None:
            own, source = (
                bench.replay.base(n).square().mean().sqrt()
                for n in (operand.node, operand.source.node)
            )
            ratio = float(own / source) if source > 0 else 0.0
            usable = math.isfinite(ratio) and ratio > 0
            found[operand.node] = 2.0 ** round(math.log2(ratio)) if usable else 1.0
    return found


def _level(additive: Tensor) -> Tensor:
    """Return (G, T_q, T_k) less one number for each query, which changes no softmax.

    A straightforward implementation does not add it, and loses nothing to it. What hides all keys
    of a query stays.
    """
    highest = additive.amax(-1, keepdim=True)
    common = torch.where(highest.abs() < HIDES, highest, torch.zeros_like(highest))
    return additive - common


class _Attention:
    """The members of one site, with their order of axes, and how to run them on drawn operands."""

    def __init__(self, bench: Bench, site: Site) -> None:
        """Raise `NotArrangedError` where the site's axes have no order that the oracle knows."""
        self.bench, self.members = bench, site.all
        self.orders = [order_of(bench, member) for member in self.members]
        self.nodes = _operand_nodes(site)
        self.gains = {n: g for m in self.members for n, g in _gains(bench, m).items()}

    def scale(self) -> Tensor:
        """Return the scale of each group (G, 1, 1), solved and verified in float64.

        Raises:
            NotMeasuredError: the site is not softmax(scale * q.k + additive) v.
        """
        exact = Replay(self.bench.recording)
        plain, given = self._drawn(0, torch.float64)
        q, k, v, context = self._canonical(exact, plain, given)
        additive = self._additive(exact, given)
        logits = self._read(exact.run([m.normaliser.logits for m in self.members], given))
        raw = q @ k.transpose(-1, -2)
        free = torch.isfinite(logits) & torch.isfinite(additive)
        free &= additive.abs() <= DROWNED * raw.abs().amax()
        free &= logits != additive  # a fill, which takes the place of the score
        raw, rest = (torch.where(free, x, 0.0) for x in (raw, logits - additive))
        energy = raw.square().sum((1, 2), keepdim=True)
        scale = (raw * rest).sum((1, 2), keepdim=True) / energy.clamp(min=1e-300)
        gap = exact_attention(Draw(q, k, v, context, scale, additive)) - context
        if not bool(gap.abs().amax() <= SAME * context.abs().amax()):
            raise NotMeasuredError("no straightforward implementation of its design is known")
        return scale

    def draws(self, replay: Replay, dtype: torch.dtype, scale: Tensor) -> Iterator[Draw]:
        """Yield runs of the site on operands N(0, 1) that are exact in `dtype`."""
        one = float(scale[0])
        same = bool(((scale - one).abs() <= SAME * abs(one)).all())
        device = replay.device
        for number in range(DRAWS):
            plain, given = self._drawn(number, dtype)
            q, k, v, context = self._canonical(replay, plain, given)
            yield Draw(
                q=q.to(device, dtype),
                k=k.to(device, dtype),
                v=v.to(device, dtype),
                context=context.to(device, dtype),
                scale=one if same else scale.to(device),
                additive=_level(self._additive(replay, given)).to(device),
            )

    def most_lost(self, replay: Replay, dtype: torch.dtype) -> Span | None:
        """Return the place of the step that loses most by itself, all others taken as exact."""
        _, given = self._drawn(0, dtype)
        steps = [n for m in self.members for n in steps_between(self.bench, m)]
        ends = [m.context for m in self.members]
        return span_of(worst_step(replay, Replay(self.bench.recording), given, steps, ends))

    def _drawn(self, number: int, dtype: torch.dtype) -> tuple[Values, Values]:
        """Return q, k and v, N(0, 1) and exact in `dtype`, and what the site multiplies from them.

        The latter have their gains, and the type that they have in the recording.
        """
        generator = torch.Generator().manual_seed(number)
        plain: dict[Node, Tensor] = {}
        given: dict[Node, Tensor] = {}
        for node in self.nodes:
            like = self.bench.recording.values[node]
            plain[node] = torch.randn(like.shape, generator=generator).to(dtype)
            native = dtype if dtype is torch.float64 else like.dtype
            given[node] = plain[node].to(native) * self.gains.get(node, 1.0)
        return plain, given

    def _canonical(
        self, replay: Replay, plain: Values, given: Values
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q (G, T_q, D), k (G, T_k, D), v (G, T_k, d_v) and the context (G, T_q, d_v)."""
        contexts = replay.run([m.context for m in self.members], given)
        parts: list[tuple[Tensor, ...]] = []
        for member, order, found in zip(self.members, self.orders, contexts, strict=True):
            known = _Known({**self.bench.recording.values, **plain, member.context: found.cpu()})
            parts.append((*score_operands(member, known), *value_side(member, known, order)))
        q, k, v, context = (torch.cat(same) for same in zip(*parts, strict=True))
        return q, k, v, context

    def _additive(self, replay: Replay, given: Values) -> Tensor:
        """Return (G, T_q, T_k), bias and mask: the normaliser's input without q.k."""
        found = []
        for member in self.members:
            assert member.score is not None
            query, _ = member.score.side(not member.key_left)
            (rest,) = replay.run([member.scores], {**given, query: torch.zeros_like(given[query])})
            if member.normaliser.logits is not member.scores:
                own = {**given, member.scores: rest}
                (rest,) = replay.run([member.normaliser.logits], own)
            found.append(rest)
        return self._read(found)

    def _read(self, logits: Sequence[Tensor]) -> Tensor:
        """Return values of the normaliser's inputs as (G, T_q, T_k), in float64."""
        both = zip(self.orders, logits, strict=True)
        return torch.cat([x.cpu().double().reshape(-1)[order.logits] for order, x in both])
