"""Tests of mha_lint.targets.timelimit."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from mha_lint.targets.timelimit import TimeLimitError, time_limit


def test_it_strikes_and_leaves_no_timer() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeLimitError), time_limit(0.05):
        while True:
            pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_it_strikes_again_where_it_was_swallowed() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitError), time_limit(0.05):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                if time.monotonic() - start > 0.3:
                    raise


def test_an_inner_limit_keeps_the_outer_one() -> None:
    with pytest.raises(TimeLimitError), time_limit(0.2):
        with pytest.raises(TimeLimitError), time_limit(0.05):
            while True:
                pass
        while True:
            pass


def test_no_time_left_at_all() -> None:
    with pytest.raises(TimeLimitError), time_limit(0.0):
        raise AssertionError("must not run")


def test_it_strikes_in_other_threads() -> None:
    struck: list[str] = []

    def work() -> None:
        try:
            with time_limit(0.05):
                while True:
                    pass
        except TimeLimitError:
            struck.append("yes")
        with time_limit(5.0):
            struck.append("and in time")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert struck == ["yes", "and in time"]
