"""Several loops of upstream on one virtual clock: each runs in a thread of its own, one at a time, in order of time.

A loop that waits says until when, or until somebody wakes it; the loop whose turn comes first goes on. Loops whose turn
falls on one instant go in the order in which they were made. Nothing here knows what the loops do.
"""

import threading

import world


class EndOfTime(BaseException):
    """Every loop waits for another, and nothing more will come."""


class Loop:
    def __init__(self, turns: "Turns", rank: int, body) -> None:
        self.turns, self.rank, self.at, self.woken = turns, rank, 0, False
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(target=turns.run_loop, args=(self, body), daemon=True)


class Turns:
    """Whose turn it is. A loop is due at a time (`at`), or waits to be woken (`at` is None)."""

    def __init__(self, clock: "TurnClock") -> None:
        self.clock, self.loops, self.current, self.failure = clock, [], None, None
        self.over, self.ended = False, threading.Semaphore(0)
        self.is_over = lambda: False
        clock.turns = self

    def add(self, body) -> Loop:
        loop = Loop(self, len(self.loops), body)
        self.loops.append(loop)
        return loop

    def run_loop(self, loop: Loop, body) -> None:
        loop.turn.acquire()
        try:
            body()
        except EndOfTime:
            pass
        except BaseException as problem:  # noqa: BLE001  (handed to the caller of `run`)
            self.failure = self.failure or problem
            self.over = True
        self.loops = [other for other in self.loops if other is not loop]
        self.hand_over()

    def run(self) -> None:
        """Until every loop has ended."""
        for loop in list(self.loops):
            loop.thread.start()
        self.hand_over()
        self.ended.acquire()
        if self.failure:
            raise self.failure

    def hand_over(self) -> None:
        if not self.loops:
            return self.ended.release()
        due = [loop for loop in self.loops if loop.at is not None]
        if not self.over and (not due or self.is_over()):
            self.over = True
        loop = min(due or self.loops, key=lambda loop: (loop.at or 0, loop.rank))
        if self.over:
            loop = self.loops[0]
        elif loop.at > self.clock.now_us:
            self.clock.now_us = loop.at
        self.current = loop
        loop.turn.release()

    def wait(self, at_us: int | None) -> None:
        """The running loop waits until a time, or until it is woken."""
        loop = self.current
        loop.at, loop.woken = at_us, False
        self.hand_over()
        loop.turn.acquire()
        if self.over:
            raise EndOfTime

    def wake(self, loop: Loop) -> None:
        if loop.at is None or loop.at > self.clock.now_us:
            loop.at, loop.woken = self.clock.now_us, True


class Meeting:
    """Loops that go on together, once all have come; each gets what all brought."""

    def __init__(self, turns: Turns, size: int) -> None:
        self.turns, self.size, self.waiting, self.brought = turns, size, [], {}

    def meet(self, index: int, what):
        self.brought[index] = what
        brought = self.brought
        if len(brought) == self.size:
            for loop in self.waiting:
                self.turns.wake(loop)
            self.waiting, self.brought = [], {}
            self.turns.wait(self.turns.clock.now_us)
        else:
            self.waiting.append(self.turns.current)
            self.turns.wait(None)
        return [brought[index] for index in range(self.size)]


class TurnClock(world.Clock):
    """The virtual clock of several loops: spending time is waiting for one's turn."""

    turns: Turns

    def advance_to(self, at_us: int) -> None:
        if at_us > self.now_us:
            self.turns.wait(at_us)

    def sleep(self, seconds: float) -> None:
        self.turns.wait(self.now_us + round(seconds * 1_000_000))
