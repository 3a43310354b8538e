"""A small model of the same kind: shrink a config, build and run it, and take back what fails."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from torch import nn

from mha_lint.targets.pretrained.building import build, parameter_count
from mha_lint.targets.pretrained.calling import NoInputsError, inputs_of
from mha_lint.targets.pretrained.climbing import Outcome, climb
from mha_lint.targets.pretrained.filling import (
    filled,
    has_timm,
    missing_keys,
    names_of_keys,
    open_keys,
    without_timm,
)
from mha_lint.targets.pretrained.layers import fewer_layers
from mha_lint.targets.pretrained.leaves import leaves, replaced, scopes
from mha_lint.targets.pretrained.mending import Mend, joined, mended, mends, rotary, with_room
from mha_lint.targets.pretrained.parts import callable_parts, part_of
from mha_lint.targets.pretrained.reading import model_name, other_classes
from mha_lint.targets.pretrained.roles import Role
from mha_lint.targets.pretrained.sizes import smaller
from mha_lint.targets.pretrained.story import background, story, trail

MOST_PARAMETERS = 200_000_000
"""0.8 GB as float32."""
TRIES = 40
SECONDS = 12.0
CALL_SECONDS = 2.5
MOST_PARTS = 3
WHOLE = 0.7
"""Share of the time for calls of the whole model, with all that it takes."""


@dataclass(frozen=True, slots=True)
class ShrunkConfig:
    """A small config whose model runs: it, and the call that does. ``notes``: what was done.

    ``part``: the path of `model` within the config's, where only a part can be called.
    ``architecture``: the class that is built, where not the config's own.
    """

    config: Any
    notes: tuple[str, ...]
    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    part: str = ""
    architecture: str = ""


class CannotShrinkError(Exception):
    """No smaller config that was tried could be built and run.

    ``stage``: "config", "build", "size" or "call", where the best try failed.
    """

    def __init__(self, stage: str, error: Exception) -> None:
        """Keep where the best try failed, and why."""
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error


STAGES = ("config", "size", "build", "call", "done")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is left as it was (roles and keys), and how often widths are doubled.

    ``filled``: keys that the config leaves open and that get a value. ``architecture``: the class
    to build, where not the config's own. ``mended``: what did not fit together in the config.
    ``partial``: the call may leave out images and sounds. ``text_only``: it begins without them.
    ``part``: the only one that is called.
    """

    undone: frozenset[str] = frozenset()
    wider: int = 0
    filled: frozenset[str] = frozenset()
    architecture: str = ""
    mended: frozenset[Mend] = frozenset()
    partial: bool = False
    text_only: bool = False
    part: str = ""


def shrunk(
    config: Any, *, variant: int = 0, tries: int = TRIES, seconds: float = SECONDS
) -> ShrunkConfig:
    """Return a small config like `config`, with which a real float32 model was built and called.

    ``variant``: 0 or 1, two different small sizes. Raises `CannotShrinkError`.
    """
    model_name(config)  # imports the model's code, which is no part of the search
    shrinker = _Shrinker(config, variant, time.thread_time() + seconds)
    search = partial(climb, attempt=shrinker.attempt, changes=shrinker.changes, tries=tries)
    found = search(Plan(), seconds=seconds * WHOLE)
    if found.error is not None and found.progress[0] == 3 and shrinker.senses:
        plan = replace(found.tried, partial=True, text_only=True)
        less = search(plan, seconds=seconds * (1 - WHOLE) / 2)
        found = less if less.error is None else found
    if found.error is not None and found.progress[0] == 3 and not found.tried.part:
        found = shrinker.in_parts(found)
    if found.error is not None:
        raise CannotShrinkError(STAGES[found.progress[0]], found.error) from found.error
    small, model, args, kwargs = found.value
    notes = shrinker.notes(found.tried)
    plan = found.tried
    return ShrunkConfig(small, notes, model, args, kwargs, plan.part, plan.architecture)


class _Shrinker:
    def __init__(self, config: Any, variant: int, deadline: float) -> None:
        self.config = config
        self.values = without_timm(config.to_dict())
        self.senses = sum(1 for _ in scopes(self.values)) > 2
        self.names = names_of_keys(config, self.values)
        self.variant = variant
        self.deadline = deadline

    def attempt(self, plan: Plan) -> Outcome[Plan]:
        """Shrink as planned, build on meta, count, build and call."""
        stage = 0
        try:
            small = self.planned(plan)
            stage = 2
            count = parameter_count(small)
            if count is not None and count > MOST_PARAMETERS:
                raise MemoryError(f"{count} parameters")
            model = part_of(build(small), plan.part)
            stage = 3
            own = model.config if plan.part else small
            left = min(CALL_SECONDS, max(0.5, self.deadline - time.thread_time()))
            args, kwargs = inputs_of(
                model,
                own,
                variant=self.variant,
                partial=plan.partial,
                text_only=plan.text_only,
                seconds=left,
            )
        except NoInputsError as error:
            progress = (stage, error.progress[1], int(not plan.partial), error.progress[3])
            return Outcome(plan, progress, error.error)
        except MemoryError as error:
            return Outcome(plan, (1, 0, 0, ()), error)
        except Exception as error:
            return Outcome(plan, (stage, 0, 0, trail(error)), error)
        return Outcome(plan, (4, 0, 0, ()), None, (small, model, args, kwargs))

    def in_parts(self, failed: Outcome[Plan]) -> Outcome[Plan]:
        """Call the parts of a model that cannot be called, and return what worked, else `failed`."""
        for plan in islice(self._parts(failed.tried), MOST_PARTS):
            outcome = self.attempt(plan)
            if outcome.error is None:
                return outcome
        return failed

    def planned(self, plan: Plan) -> Any:
        """Return the small config of a plan."""
        small = type(self.config).from_dict(with_room(self.reduced(plan)))
        if plan.architecture:
            small.architectures = [plan.architecture]
        return small

    def reduced(self, plan: Plan) -> dict[str, Any]:
        """Return the dict of a plan's small config."""
        shorter = fewer_layers(filled(self.values, plan.filled), plan.undone)
        new = smaller(shorter, variant=self.variant, undone=plan.undone, wider=plan.wider)
        return mended(replaced(shorter, new), plan.mended)

    def changes(self, failed: Outcome[Plan]) -> Iterator[Plan]:
        """Yield plans that take back less and less likely causes of the error."""
        plan = failed.tried
        assert failed.error is not None
        text, behind = story(failed.error), background(failed.error)
        found = leaves(self.values)
        roles = {leaf.role for leaf in found}
        keys = {leaf.key: leaf.role for leaf in found if leaf.role is not Role.KEEP}
        named = [
            k for k in keys if k in text and k not in plan.undone and keys[k] not in plan.undone
        ]
        suspects = dict.fromkeys(keys[k] for k in named)
        yield from self._filled(plan, text, behind)
        error, small = str(failed.error), self.reduced(plan) if failed.progress[0] else {}
        differ = list(joined(error, small))[:4]
        for mend in (*mends(error), *rotary(behind, small), *differ):
            yield replace(plan, mended=plan.mended | {mend})
        if failed.progress[0] == 3 and not plan.partial:
            yield replace(plan, partial=True)
        if failed.progress[0] > 1:
            yield from self._others(plan, failed.error)
        if isinstance(failed.error, NotImplementedError) and not plan.part:
            yield from self._parts(plan)
        if failed.progress[0] == 1:
            named, suspects = [], {}
        else:
            if Role.WIDTH not in plan.undone:
                yield replace(plan, wider=plan.wider + 1)
            if differ and Role.WIDTH not in plan.undone:
                yield replace(plan, undone=plan.undone | {Role.WIDTH})
            near = (k for k in keys if k in behind and keys[k] not in plan.undone)
            suspects |= dict.fromkeys(keys[k] for k in near)
        for key in named[:6]:
            yield replace(plan, undone=plan.undone | {key})
        for role in (*suspects, *_ORDER):
            if role in roles and role not in plan.undone:
                yield replace(plan, undone=plan.undone | {role})
        if plan.wider < 4 and Role.WIDTH not in plan.undone:
            yield replace(plan, wider=plan.wider + 2)

    def _filled(self, plan: Plan, text: str, behind: str) -> Iterator[Plan]:
        """Yield plans that give a value to what the config leaves open."""
        if missing := missing_keys(text) - plan.filled:
            yield replace(plan, filled=plan.filled | missing)
        keys = open_keys(self.values) - plan.filled
        named = frozenset(k for k in keys if any(n in text for n in self.names[k]))
        mentioned = frozenset(re.findall(r"\w+", behind))
        for some in (*(frozenset({k}) for k in sorted(named)), named, keys):
            loose = "None" in text or text.startswith(("empty()", "topk()"))
            if some and (loose or some & named):
                yield replace(plan, filled=plan.filled | some)
        if asked := frozenset(k for k in keys - named if self.names[k] & mentioned):
            yield replace(plan, filled=plan.filled | asked)

    def _parts(self, plan: Plan) -> Iterator[Plan]:
        """Yield plans that call a part alone."""
        for path in callable_parts(self.planned(plan)):
            yield replace(plan, part=path)

    def _others(self, plan: Plan, error: Exception) -> Iterator[Plan]:
        """Yield plans for another class of the same kind of model."""
        words = ("has no attribute", "forward", "unexpected keyword")
        if not plan.architecture and any(w in str(error) for w in words):
            for name in other_classes(self.config):
                yield replace(plan, architecture=name)

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """Say what was made smaller, and what was not."""
        name = getattr(self.config, "model_type", "") or type(self.config).__name__
        first = f"measured at a small size of {name}, every integer of its config shrunk alike"
        notes = [first]
        if has_timm(self.config.to_dict()) and not has_timm(self.values):
            notes.append("timm is not installed: a ResNet stands for each backbone of it")
        if plan.undone:
            notes.append("left as they were: " + ", ".join(sorted(plan.undone)))
        if plan.filled:
            notes.append(
                "given a value, where the config has none: " + ", ".join(sorted(plan.filled))
            )
        if plan.mended:
            notes.append("the config's parts did not fit together, and were made to")
        if plan.architecture:
            notes.append(f"built as {plan.architecture}")
        if plan.part:
            notes.append(f"only its part {plan.part} is called")
        if plan.partial:
            notes.append("called without images and sounds where these did not go with the text")
        return tuple(notes)


_ORDER = (
    Role.IMAGE, Role.PATCHES, Role.WINDOW, Role.TILE, Role.POSITIONS, Role.HEADS, Role.HEAD_DIM,
    Role.SECTION, Role.EXPERTS, Role.VOCABULARY, Role.QUERIES, Role.CODEBOOKS, Role.PERIOD,
    Role.DEPTHS, Role.LAYER_INDEX, Role.THRESHOLD, Role.LAYERS, Role.WIDTH,
)  # fmt: skip
