"""Find inputs for one forward of a model: by its signature, its config and the errors of calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from mha_lint.targets.pretrained.arguments import Maker, makers, states
from mha_lint.targets.pretrained.bounds import Bounded
from mha_lint.targets.pretrained.climbing import Counted, Outcome, Progress, climb
from mha_lint.targets.pretrained.documented import from_docs, shapes_of
from mha_lint.targets.pretrained.filling import missing_keys
from mha_lint.targets.pretrained.mending import mends
from mha_lint.targets.pretrained.needs import Needs
from mha_lint.targets.pretrained.story import story, trail
from mha_lint.targets.words import words

LENGTHS = (7, 11)
TRIES = 60
SECONDS = 8.0
LARGEST = 1 << 20
"""Elements of an input, at most, where an error tells its size."""
NEVER = words(
    """self labels cache past_key_values past_key_value inputs_embeds decoder_inputs_embeds
    encoder_outputs head_mask cache_position use_cache return_dict output_attentions
    output_hidden_states return_loss mm_encoder_outputs"""
)
USUAL = (
    "input_ids", "decoder_input_ids", "attention_mask", "pixel_values", "input_features",
    "input_values", "bbox", "image_grid_thw", "pixel_attention_mask", "spatial_shapes",
    "image_sizes", "image_position_ids", "pixel_position_ids", "input_features_mask",
    "feature_attention_mask", "mm_token_type_ids",
)  # fmt: skip
_MISMATCH = re.compile(r"tokens:?\s*(\d+)[^\d]+features:?\s*(\d+)", re.IGNORECASE)
_MASKED = re.compile(r"value tensor of shape \[(\d+), \d+\].* indexing result of shape \[\d+,")
_SENSES = frozenset({"pixel_values", "input_features", "input_values", "input_ids"})
_KINDS = ("video", "audio", "image")


class NoInputsError(Exception):
    """No call that was tried works; says what came furthest."""

    def __init__(self, message: str, progress: Progress, error: Exception) -> None:
        """Keep how far the best try came, and its error."""
        super().__init__(message)
        self.progress = progress
        self.error = error


@dataclass(frozen=True, slots=True)
class Call:
    """A try: arguments with the form that each has, the text's length, what stands in it.

    ``sizes``: (argument, axis, size) where an error named the size that an axis must have.
    """

    arguments: tuple[tuple[str, int], ...]
    length: int
    placeholders: tuple[tuple[str, int], ...] = ()
    batch: int = 2
    sizes: tuple[tuple[str, int, int], ...] = ()

    def without(self, name: str) -> Call:
        """Return the call without an argument."""
        kept = tuple(a for a in self.arguments if a[0] != name)
        return replace(self, arguments=kept)

    def having(self, name: str, form: int = 0) -> Call:
        """Return the call with an argument, in a form."""
        changed = tuple((n, form if n == name else f) for n, f in self.arguments)
        if name not in self.names:
            changed += ((name, form),)
        return replace(self, arguments=changed)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the arguments."""
        return frozenset(n for n, _ in self.arguments)


def inputs_of(
    model: nn.Module,
    config: Any,
    *,
    variant: int = 0,
    partial: bool = True,
    text_only: bool = False,
    tries: int = TRIES,
    seconds: float = SECONDS,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) with which one forward of `model` works, each input made from a seed.

    ``partial``: where images or sounds do not work together with text, leave them out.
    ``text_only``: begin without them.
    Raises `NoInputsError` where no call worked.
    """
    caller = _Caller(model, config.to_dict(), partial)
    start = caller.first(LENGTHS[variant])
    if text_only:
        start = caller.text_of(start)
    found = climb(start, caller.attempt, caller.changes, tries=tries, seconds=seconds)
    if found.error is not None:
        message = f"{type(found.error).__name__}: {found.error}"
        raise NoInputsError(message, found.progress, found.error) from found.error
    return (), found.value


class _Caller:
    def __init__(self, model: nn.Module, values: dict[str, Any], partial: bool) -> None:
        self.model = model
        self.partial = partial
        self.values = values
        parameters = inspect.signature(model.forward).parameters
        self.told = shapes_of(model.forward)
        self.takes = [
            n for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        self.open = {n for n in self.takes if parameters[n].default is None}
        self.required = [n for n in self.takes if parameters[n].default is inspect.Parameter.empty]

    def first(self, length: int) -> Call:
        """Return the likeliest call."""
        main = getattr(self.model, "main_input_name", "input_ids")
        names = [main] if isinstance(main, str) else list(main)
        wanted = [*self.required, *names, *USUAL]
        names = [n for n in dict.fromkeys(wanted) if n in self.takes]
        names = [n for n in names if n in self.required or n not in NEVER]
        if "input_ids" not in names and "attention_mask" not in self.required:
            names = [n for n in names if n != "attention_mask"]  # of samples or patches: all there
        return Call(tuple((n, 0) for n in names), length)

    def everything(self, call: Call) -> Call:
        """Return the call with all that the forward takes."""
        for name in self.takes:
            if name not in NEVER and name in self.open:
                call = call.having(name)
        return call

    def text_of(self, call: Call) -> Call:
        """Return the call without images and sounds."""
        kept = (*self.required, "input_ids", "attention_mask", "decoder_input_ids")
        text_only = tuple(a for a in call.arguments if a[0] in kept)
        return replace(call, arguments=text_only, placeholders=())

    def attempt(self, call: Call) -> Outcome[Call]:
        """Make the inputs of a call and run it."""
        with Counted() as counted:
            try:
                with torch.no_grad(), Bounded(SECONDS / 4):
                    kwargs = self.made(call)
                    self.model(**kwargs)
            except Exception as error:
                progress = (0, len(counted.kinds), counted.calls, trail(error))
                if missing_keys(str(error)) and not self.partial:  # no call mends that
                    raise NoInputsError(str(error), progress, error) from error
                return Outcome(call, progress, error)
        return Outcome(call, (1, len(counted.kinds), counted.calls, ()), None, kwargs)

    def made(self, call: Call) -> dict[str, Any]:
        """Return the call's arguments, from one seed."""
        needs = Needs(self.values, call.length, call.batch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            kwargs = {n: self.ways(n, needs, call)[form]() for n, form in call.arguments}
            for name, axis, size in call.sizes:
                if name in kwargs:
                    kwargs[name] = _resized(kwargs[name], axis, size)
        self._place(kwargs, call, needs)
        if "use_cache" in self.takes:
            kwargs["use_cache"] = False
        return kwargs

    def ways(self, name: str, needs: Needs, call: Call) -> list[Maker]:
        """Return the ways to make an argument."""
        known = makers(name, needs, frozenset(self.takes))
        told = from_docs(name, *self.told[name], needs) if name in self.told else None
        return [*known, *([told] if told is not None else ()), *(() if known else states(needs))]

    def _place(self, kwargs: dict[str, Any], call: Call, needs: Needs) -> None:
        """Put the tokens that stand for images and sounds in front of the text."""
        ids = kwargs.get("input_ids")
        if not isinstance(ids, torch.Tensor):
            return
        kinds = torch.zeros_like(ids)
        for kind, count in call.placeholders:
            token, opening = needs.token(kind), needs.opening(kind)
            if token is None:
                continue
            row = ([opening] if opening is not None else []) + [token] * count
            front = torch.tensor([row] * len(ids))
            ids = torch.cat((front, ids), 1)
            value = 2 if kind == "video" else 3 if kind == "audio" else 1
            kinds = torch.cat(((front == token) * value, kinds), 1)
        kwargs["input_ids"] = ids
        for name in ("attention_mask", "position_ids", "token_type_ids"):
            if name in kwargs and kwargs[name].shape[-1] != ids.shape[-1]:
                kwargs[name] = torch.ones_like(ids)
        for name in kwargs:
            if name.endswith("mm_token_type_ids"):
                kwargs[name] = kinds

    def changes(self, failed: Outcome[Call]) -> Iterator[Call]:
        """Yield calls that may mend the error, the likeliest first."""
        call, text = failed.tried, str(failed.error)
        assert failed.error is not None
        if not self.partial and any(mends(text)):
            return  # it is the config that must change
        yield from self._matched(call, text)
        for name in self._named(story(failed.error)):
            if name not in call.names and name not in NEVER:
                yield call.having(name)
        yield from self._sized(call, text)
        if "None" in text:
            yield self.everything(call)
        needs = Needs(self.values, call.length, call.batch)
        for name, form in call.arguments:
            count = len(self.ways(name, needs, call))
            for step in range(1, count):
                yield call.having(name, (form + step) % count)
        yield from self._enlarged(call, text)
        for name, _ in call.arguments:
            needed = name in self.required or (name in _SENSES and not self.partial)
            if not needed and len(call.arguments) > 1:
                yield call.without(name)
        if self.partial:
            yield self.text_of(call)
        for length in (16, 32, 64):
            if call.length != length and "input_ids" in call.names:
                yield replace(call, length=length)
        for name in self.takes:
            if name not in call.names and name not in NEVER and self._may_help(name):
                yield call.having(name)
        for form in range(4):
            alike = call
            for name in call.names:
                if "pixel_values" in name:
                    alike = alike.having(name, form)
            yield alike
        yield self.everything(call)
        if call.batch > 1:
            yield replace(call, batch=1)

    def _matched(self, call: Call, text: str) -> Iterator[Call]:
        """Yield the call with as many tokens for images as there are features."""
        masked = _MASKED.search(text)
        if masked is not None and int(masked[1]) % call.batch == 0:
            yield replace(call, length=int(masked[1]) // call.batch)
        match = _MISMATCH.search(text)
        if match is None:
            return
        there, wanted = int(match[1]), int(match[2])
        named = [k for k in _KINDS if k in text.lower()]
        needs = Needs(self.values, call.length, call.batch)
        for kind in named or ["image", "audio", "video"]:
            if needs.token(kind) is None:
                continue
            now = dict(call.placeholders)
            for unit in (1, needs.width):
                if wanted % (unit * call.batch) == 0 and wanted >= unit * call.batch:
                    now[kind] = wanted // unit // call.batch
                    yield replace(call, placeholders=tuple(now.items()))
            if there and now.get(kind):
                now[kind] = max(1, now[kind] * wanted // there)
                yield replace(call, placeholders=tuple(now.items()))

    def _sized(self, call: Call, text: str) -> Iterator[Call]:
        """Yield the call with an axis of an input as long as the error says that it must be."""
        wrong: list[tuple[int, int, int | None]] = []  # size there, size wanted, axis
        for match in re.finditer(r"\(\d+x(\d+) and (\d+)x\d+\)", text):
            wrong.append((int(match[1]), int(match[2]), -1))
        for match in re.finditer(r"to have (\d+) channels, but got (\d+)", text):
            wrong.append((int(match[2]), int(match[1]), 1))
        for match in re.finditer(r"a \((\d+)\) must match .* b \((\d+)\).* (\d+)$", text):
            wrong.append((int(match[1]), int(match[2]), int(match[3])))
            wrong.append((int(match[2]), int(match[1]), int(match[3])))
        yield from self._alike(call, text)
        for match in re.finditer(r"multiple of (\d+)", text):
            wrong.append((0, int(match[1]) * 4, -1))
        for match in re.finditer(r"normalized_shape=\[(\d+)\].*input of size\[.*?(\d+)\]", text):
            wrong.append((int(match[2]), int(match[1]), -1))
        for match in re.finditer(r"\((\d+)\*(\d+)\) doesn't match \w+ \((\d+)\*(\d+)\)", text):
            yield self._scaled(call, (int(match[3]), int(match[1])), (int(match[4]), int(match[2])))
        if not wrong:
            return
        made = self.made(call)
        for there, wanted, axis in wrong:
            for name, value in made.items():
                if not isinstance(value, torch.Tensor) or name.endswith("ids"):
                    continue
                for index in range(value.dim()):
                    at = index == axis or index - value.dim() == axis
                    grown = value.numel() // max(value.shape[index], 1) * wanted
                    if (value.shape[index] == there or (at and not there)) and grown < LARGEST:
                        kept = tuple(s for s in call.sizes if s[:2] != (name, index))
                        yield replace(call, sizes=(*kept, (name, index, wanted)))

    def _alike(self, call: Call, text: str) -> Iterator[Call]:
        """Yield the call with every axis of a length that does not fit as long as it must be."""
        made = self.made(call)
        tensors = {n: v for n, v in made.items() if isinstance(v, torch.Tensor)}
        found: list[tuple[int, int]] = []  # length there, length wanted
        for match in re.finditer(r"multiple of [^()]*\((\d+)\),? but got (\d+)", text):
            found.append((int(match[2]), _multiple(int(match[1]), int(match[2]))))
        for match in re.finditer(r"shape '\[.*-1, (\d+)\]' is invalid .* size (\d+)", text):
            lengths = {v.shape[-1] for v in tensors.values() if v.numel() == int(match[2])}
            found += [(n, _multiple(int(match[1]), n)) for n in sorted(lengths)]
        for match in re.finditer(r"Expected size (\d+) but got size (\d+)", text):
            found += [(int(match[1]), int(match[2])), (int(match[2]), int(match[1]))]
        for there, wanted in found:
            for last in (True, False):
                sizes = {s[:2]: s[2] for s in call.sizes}
                for name, value in tensors.items():
                    axes = [i for i, n in enumerate(value.shape) if n == there]
                    sizes |= {(name, i): wanted for i in (axes[-1:] if last else axes)}
                if len(sizes) > len(call.sizes):
                    yield replace(call, sizes=tuple((n, i, size) for (n, i), size in sizes.items()))

    def _enlarged(self, call: Call, text: str) -> Iterator[Call]:
        """Yield the call with more of images and sounds, where the error says that it is short."""
        made = self.made(call)
        lasts = {(n, v.dim() - 1) for n, v in made.items() if isinstance(v, torch.Tensor)}
        if lasts & {s[:2] for s in call.sizes}:
            return  # it was made longer before
        if re.search(r"too small|can't be greater|calculated shape", text):
            for more in (2, 4) if "pixel_values" in call.names else (4, 32, 256):
                yield self._scaled(call, (more, 1), (more, 1))

    def _scaled(self, call: Call, *shares: tuple[int, int]) -> Call:
        """Return the call with the last axes of images (both) and sounds (one) of other sizes."""
        sizes = {s[:2]: s[2] for s in call.sizes}
        for name, value in self.made(call).items():
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            axes = 2 if value.dim() > 3 else 1
            for axis, (over, under) in zip((-2, -1)[-axes:], shares[-axes:], strict=True):
                index = value.dim() + axis
                sizes[name, index] = value.shape[index] * over // under
        return replace(call, sizes=tuple((n, i, size) for (n, i), size in sizes.items()))

    def _named(self, text: str) -> list[str]:
        """Return the arguments that an error names, longest names first."""
        words = set(re.findall(r"[a-z_0-9]+", text))
        return sorted((n for n in self.takes if n in words), key=len, reverse=True)

    def _may_help(self, name: str) -> bool:
        return name.endswith(
            ("ids", "mask", "values", "features", "thw", "shapes", "sizes", "embeds")
        )


def _multiple(unit: int, length: int) -> int:
    return unit * max(2, length // max(unit, 1))


def _resized(value: Any, axis: int, size: int) -> Any:
    """Return a tensor like `value`, of another size along an axis."""
    if not isinstance(value, torch.Tensor) or axis >= value.dim() or size > 1 << 16:
        return value
    shape = [size if i == axis else n for i, n in enumerate(value.shape)]
    if value.is_floating_point():
        return torch.randn(shape)
    return torch.full(shape, int(value.flatten()[0]) if value.numel() else 1, dtype=value.dtype)
