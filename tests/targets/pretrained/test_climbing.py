"""A search that follows the tries that came furthest."""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.targets.pretrained.climbing import Outcome, Progress, climb

STORY: dict[str, tuple[int, str]] = {
    "start": (1, "first"),
    "back": (0, "worse"),
    "same": (1, "second"),
    "same again": (1, "second"),
    "dead end": (2, "third"),
    "end": (3, ""),
}
NEXT: dict[str, list[str]] = {
    "start": ["back", "same", "same again", "dead end"],
    "back": ["end"],
    "same": ["dead end"],
    "dead end": ["back"],
}


def _attempt(name: str) -> Outcome[str]:
    stage, message = STORY[name]
    progress: Progress = (stage, 0, 0, ())
    return Outcome(name, progress, ValueError(message) if message else None)


def _changes(failed: Outcome[str]) -> Iterator[str]:
    yield from NEXT.get(failed.tried, [])


def test_what_came_further_is_followed_and_less_far_is_not() -> None:
    found = climb("start", _attempt, _changes, tries=20, seconds=5.0)
    assert (found.tried, str(found.error)) == ("dead end", "third")


def test_the_search_goes_back_from_a_dead_end() -> None:
    changed = {**NEXT, "same": ["dead end", "end"]}
    found = climb(
        "start", _attempt, lambda failed: changed.get(failed.tried, []), tries=20, seconds=5.0
    )
    assert (found.tried, found.error) == ("end", None)


def test_it_stops_after_so_many_tries() -> None:
    tried: list[str] = []

    def attempt(name: str) -> Outcome[str]:
        tried.append(name)
        return Outcome(name, (0, 0, 0, ()), ValueError(name))

    def changes(failed: Outcome[str]) -> Iterator[str]:
        yield failed.tried + "x"

    climb("", attempt, changes, tries=4, seconds=5.0)
    assert tried == ["", "x", "xx", "xxx"]
