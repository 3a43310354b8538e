"""Run a guess, read the error, change one thing, run again: the cheapest change first."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
import time
from typing import Any

from mha_lint.model.source import Span
from mha_lint.targets.failures import not_made, same_at_every_size
from mha_lint.targets.infer.chance import (
    First,
    fails_at_any_size,
    fails_but_for,
    has_nan,
    only_sizes_differ,
    reduced_to_one,
    widths_guessed,
)
from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.edits import (
    build_edits,
    call_edits,
    flipped_masks,
    other_configs,
)
from mha_lint.targets.infer.entries import is_synthetic_config, with_entry
from mha_lint.targets.infer.errors import largest_number, reached
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs, image_sides
from mha_lint.targets.infer.module_needs import module_dtype
from mha_lint.targets.infer.optional import switched_off
from mha_lint.targets.infer.scheme import SCHEMES, Scheme
from mha_lint.targets.infer.state import State
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.memory import GROWTH, MemoryLimitError, memory_limit, refused
from mha_lint.targets.scene import scene_of
from mha_lint.targets.session import describe
from mha_lint.targets.sizes import bound_arguments, sizes_of
from mha_lint.targets.stubs import MissingPackageError
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.timelimit import TimeLimitError, time_limit

MOST_TRIES, MOST_BUILDS = 200, 120
MOST_TIMEOUTS = 3
MOST_HELD = 12
SECONDS = 5.0
LARGEST = 1_000_000
"""Elements of an input, beyond which a guess is not tried."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a search came to: a subject, or the furthest failure and the expressions tried then."""

    subject: Subject | None
    failure: StageError | None = None
    build: str = ""
    call: str = ""
    unsure: tuple[str, ...] = ()
    first_errors: tuple[BaseException, ...] = ()
    """The error of the first guess at each set of sizes, where it built."""
    certain: bool = False
    """The failure is the code's own: it runs at no sizes but by chance."""
    seconds: float = 0.0
    """How long a try took that was stopped, where no other failure is known."""


class Search:
    """Looks for a build and a call that run, within a number of tries and a time.

    ``build``: a construction that is given (stated or mined) instead of guessed.
    """

    def __init__(
        self,
        maker: FileMaker,
        made: Any,
        name: str,
        deadline: float,
        *,
        build: str | None = None,
        call: str | None = None,
    ) -> None:
        """Prepare to build `made`, which the expression `name` names, before `deadline`."""
        self.maker, self.made, self.name, self.deadline = maker, made, name, deadline
        self.build, self.call = build, call
        self.scope = maker.namespace()
        self.home = maker.loaded.home
        self.is_class = isinstance(made, type)
        self.factory = False
        self.constructor = Constructor(made, name, self.scope) if build is None else None
        self.modules: dict[str, Any] = {}
        self.inputs: dict[tuple[str, Scheme], Inputs] = {}
        self.heap: list[tuple[float, int, State]] = []
        self.seen: set[tuple[str, str]] = set()
        self.pushed: set[State] = set()
        self.ticket = itertools.count()
        self.best: tuple[float, StageError, str, str] | None = None
        self.spare: Subject | None = None
        self.accepted: State | None = None
        self.finite = True
        self.first: dict[Scheme, First] = {}
        self.stopped: list[tuple[str, str]] = []

    def run(self) -> Outcome:
        """Try states until one runs and gives finite numbers."""
        for index, scheme in enumerate(SCHEMES):
            self._push(State(scheme), 0.9 * index)
        while self.heap and self._may_go_on():
            cost, _, state = heapq.heappop(self.heap)
            subject = self._try(state, cost)
            if subject is not None:
                return self._settled(subject)
            if len(self.stopped) >= MOST_TIMEOUTS:
                break
        if (found := self._first_guesses()) is not None and self.finite:
            return self._settled(found)
        if self.spare is not None:
            return self._made_anew(self.spare)
        if self.best is None:
            build, call = self.stopped[0] if self.stopped else ("", "")
            return Outcome(None, build=build, call=call, seconds=SECONDS if build else 0.0)
        _, failure, build, call = self.best
        errors = tuple(first.error for first in self.first.values())
        place = fails_at_any_size(errors[0], self.home) if errors else None
        if place is not None and self._all_at(place):
            first = next(iter(self.first.values()))
            failure, build, call = first.failure, first.build, first.call
        certain = place is not None and self._all_at(place)
        if not certain and (alone := self._alone(failure, errors)) is not None:
            return self._made_anew(alone)
        return Outcome(None, failure, build, call, self._unsure(), errors, certain)

    def _may_go_on(self) -> bool:
        tries = len(self.seen) < MOST_TRIES and len(self.modules) < MOST_BUILDS
        return tries and time.monotonic() < self.deadline

    def _alone(self, failure: StageError, errors: tuple[BaseException, ...]) -> Subject | None:
        """Return the first guess with one sample, where the code does not run with several.

        Unless its error with several tells what is wrong with the code.
        """
        told = not_made(self.maker, failure, "", "", (), certain=False).problem
        if told or self.call is not None or same_at_every_size(errors, self.home) is not None:
            return None
        return self._try(State(dataclasses.replace(SCHEMES[0], batch=1)), math.inf)

    def _first_guesses(self) -> Subject | None:
        """Try the first guess at every set of sizes, for its error; return one that runs."""
        found = None
        for scheme in SCHEMES:
            if time.monotonic() < self.deadline and len(self.stopped) < MOST_TIMEOUTS:
                found = found or self._try(State(scheme), math.inf)
        return found

    def _settled(self, subject: Subject) -> Outcome:
        """Return `subject`, unless it runs by chance: then the failure at all usual sizes."""
        state, first = self.accepted, self.first.get(SCHEMES[0])
        assert state is not None
        inputs = self._inputs(subject.build, subject.module, state.scheme)
        usual = first is None or not only_sizes_differ(state, inputs, self.constructor)
        if usual or first is None:
            return self._made_anew(self._simplified(subject))
        place = fails_at_any_size(first.error, self.home) or fails_but_for(
            state.scheme.length,
            first.error,
            self.home,
            inputs.sizes_at(state.scheme),
            sizes_of(bound_arguments(subject.recipe, self.scope)),
        )
        head = reduced_to_one(state, self.constructor)
        if place is None and head is None:
            return self._made_anew(self._simplified(subject))
        better = self._first_guesses()
        self.accepted = state
        errors = tuple(one.error for one in self.first.values())
        if place is not None and self._all_at(place):
            return Outcome(
                None, first.failure, first.build, first.call, first_errors=errors, certain=True
            )
        if head is None or better is not None:
            return self._made_anew(self._simplified(better or subject))
        if widths_guessed(state, self.constructor) < 2 and same_at_every_size(errors, self.home):
            return Outcome(None, first.failure, first.build, first.call, first_errors=errors)
        found = self._made_anew(self._simplified(subject))
        if found.subject is not None:
            several = dict(self.constructor.first(state.scheme))[head] if self.constructor else ""
            note = f"{head}=1 (inferred): with {several} it fails, {describe(first.error)}"
            found.subject.notes += (note,)
        return found

    def _all_at(self, place: Span) -> bool:
        """Tell whether every first guess that failed did so at the line of `place`."""
        scenes = [scene_of(one.error, self.home) for one in self.first.values()]
        return all(s is not None and s.span.line == place.line for s in scenes)

    def _made_anew(self, subject: Subject) -> Outcome:
        """Make the subject once more from its recipe: its module has been called before."""
        try:
            made = self.maker.evaluate(subject.recipe)
        except StageError as failure:
            return Outcome(None, failure, subject.build, subject.call)
        arguments = dict(self.accepted.arguments) if self.accepted is not None else {}
        if (flag := switched_off(self.constructor, arguments)) is not None:
            made.notes += (flag,)
        if self.accepted is not None and self.accepted.scheme.batch == 1:
            made.notes += ("called with one sample: with several it fails",)
        return Outcome(made)

    def _too_large(self, inputs: Inputs, state: State) -> bool:
        sizes = inputs.sizes_at(state.scheme)
        return any(
            math.prod(sizes.get(a, 1) if isinstance(a, str) else a for a in guess.axes) > LARGEST
            for _, guess in state.inputs or ()
        )

    def _unsure(self) -> tuple[str, ...]:
        """Return the constructor arguments whose meaning could not be told."""
        if self.constructor is None:
            return ()
        guesses = self.constructor.guesses(SCHEMES[0])
        return tuple(name for name, guess in guesses.items() if guess.role is None)

    def _push(self, state: State, cost: float) -> None:
        if state not in self.pushed:
            self.pushed.add(state)
            heapq.heappush(self.heap, (cost, next(self.ticket), state))

    def _expression(self, state: State) -> str:
        if self.constructor is None:
            assert self.build is not None
            return self.build
        if not self.is_class and not self.factory:
            return self.name
        arguments = {**self.constructor.first(state.scheme), **dict(state.arguments)}
        for name, text in state.entries:
            arguments = {
                key: with_entry(value, name, text) if is_synthetic_config(value) else value
                for key, value in arguments.items()
            }
        return self.constructor.render(arguments)

    @staticmethod
    def _call(inputs: Inputs, state: State, module: Any) -> str:
        return inputs.render(dict(state.inputs or ()), state.scheme, module_dtype(module))

    def _try(self, state: State, cost: float) -> Subject | None:
        try:
            build = self._expression(state)
        except Exception:  # our own guess could not be written down: the next one
            return None
        module = self._module(build, state, cost)
        if module is None:
            return None
        inputs = self._inputs(build, module, state.scheme)
        is_first = state.inputs is None and not state.arguments
        if state.inputs is None:
            names = inputs.required()
            chosen = tuple((n, inputs.options(n)[0]) for n in names)
            state = dataclasses.replace(state, inputs=chosen)
        call = self.call if self.call is not None else self._call(inputs, state, module)
        if (build, call) in self.seen:
            return None
        self.seen.add((build, call))
        recipe = Recipe(build, call, "inferred")
        if self._too_large(inputs, state):
            return None
        try:
            with time_limit(self._seconds()), self._memory():
                subject = self.maker.evaluate(recipe, built=module)
                self.finite = not has_nan(subject)
        except TimeLimitError:
            self.stopped.append((build, call))
            return None
        except StageError as failure:
            self._failed(failure, build, call, 2)
            if is_first and failure.stage == "call" and state.scheme in SCHEMES:
                self.first.setdefault(state.scheme, First(failure, build, call))
            if self.call is None:
                place = reached(failure.error, self.home)
                largest = largest_number(str(failure.error))
                cost += 0.1 * state.step + state.progress(place, largest)
                for extra, successor in call_edits(
                    self.constructor, state, failure.error, inputs, self.home
                ):
                    further = dataclasses.replace(
                        successor, step=state.step + 1, reached=place, largest=largest
                    )
                    self._push(further, cost + extra)
            else:
                for extra, successor in build_edits(
                    self.constructor, state, failure.error, self.home
                ):
                    self._push(successor, cost + extra)
            return None
        self.accepted = state
        if self.call is None and not self.finite:
            self.spare = self.spare or subject
            for extra, successor in flipped_masks(state):
                self._push(successor, cost + extra)
            return None
        return subject

    def _simplified(self, subject: Subject) -> Subject:
        """Undo each change that turned out not to be needed, and return what still runs."""
        state = self.accepted
        if state is None or state.inputs is None or self.call is not None:
            return subject
        simpler = [
            state.with_input(name, dataclasses.replace(plain, edited=frozenset()))
            for name, guess in state.inputs
            if guess.edited
            for plain in [self._unedited(name, guess, subject, state.scheme)]
            if plain is not None
        ]
        if state.scheme.length in (state.scheme.batch, 1) or state.scheme not in SCHEMES:
            first = SCHEMES[0]
            usual = dataclasses.replace(state.scheme, length=first.length, source=first.source)
            simpler.append(dataclasses.replace(state, scheme=usual))
        for other in simpler:
            inputs = self._inputs(subject.build, subject.module, other.scheme)
            call = self._call(inputs, other, subject.module)
            try:
                with time_limit(self._seconds()):
                    recipe = Recipe(subject.build, call, "inferred")
                    found = self.maker.evaluate(recipe, built=subject.module)
            except (StageError, TimeLimitError):
                continue
            if not has_nan(found):
                return found
        return subject

    def _unedited(
        self, name: str, guess: InputGuess, subject: Subject, scheme: Scheme
    ) -> InputGuess | None:
        """Return the option of the same rank that `guess` came from."""
        inputs = self._inputs(subject.build, subject.module, scheme)
        same = [o for o in inputs.options(name) if len(o.axes) == len(guess.axes)]
        return next((o for o in same if o.kind == guess.kind), None)

    def _seconds(self) -> float:
        """Return how long the next try may take."""
        return min(SECONDS, self.deadline - time.monotonic())

    def _memory(self) -> contextlib.AbstractContextManager[None]:
        """Bound the memory of the next try, unless the module is as large as the user says."""
        return memory_limit() if self.build is None else contextlib.nullcontext()

    def _failed(self, failure: StageError, build: str, call: str, stage: int) -> None:
        if self.build is None and refused(failure.error):
            most = f"{GROWTH >> 30} GB of memory, the limit of one try"
            failure = StageError(failure.stage, MemoryLimitError(f"it takes more than {most}"))
            stage = 0  # any other failure says more
        told = stage + 0.5 * isinstance(failure.error, MissingPackageError)
        if self.best is None or told > self.best[0]:
            self.best = (told, failure, build, call)

    def _module(self, build: str, state: State, cost: float) -> Any:
        if build not in self.modules:
            self._let_go()
            try:
                with time_limit(self._seconds()), self._memory():
                    self.modules[build] = self.maker.build(build)
            except TimeLimitError:
                self.modules[build] = None
                self.stopped.append((build, ""))
                for successor in other_configs(self.constructor, state):
                    self._push(successor, cost + 0.1)
            except StageError as failure:
                self.modules[build] = None
                self._failed(failure, build, "", 1)
                for extra, successor in build_edits(
                    self.constructor, state, failure.error, self.home
                ):
                    self._push(successor, cost + extra)
        return self.modules[build]

    def _let_go(self) -> None:
        """Forget the oldest module that was built, when many are held."""
        held = [build for build, module in self.modules.items() if module is not None]
        for build in held[: max(len(held) - MOST_HELD, 0)]:
            del self.modules[build]
            for key in [k for k in self.inputs if k[0] == build]:
                del self.inputs[key]

    def _inputs(self, build: str, module: Any, scheme: Scheme) -> Inputs:
        key = (build, scheme)
        if key not in self.inputs:
            recipe = Recipe(build, "", "inferred")
            numbers = sizes_of(bound_arguments(recipe, self.scope))
            widths = [v for n, v in numbers.items() if role_of(n) is Role.WIDTH and v > 1]
            self.inputs[key] = Inputs(module, scheme, next(iter(widths), None))
            self.inputs[key].images = image_sides(numbers)
        return self.inputs[key]
