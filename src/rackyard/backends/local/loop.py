"""A small event loop. asyncio would double the time an agent needs to start."""

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable

Callback = Callable[[], None]


class Loop:
    """File descriptors, timers and signals, in one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._running = True

    def add(self, fd: int, callback: Callback) -> None:
        """Call back whenever `fd` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def remove(self, fd: int) -> None:
        """Forget `fd`; to be called before it is closed."""
        self._selector.unregister(fd)

    def later(self, seconds: float, callback: Callback) -> None:
        """Call back once, after `seconds`."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def on_signals(self, numbers: tuple[signal.Signals, ...], callback: Callable[[int], None]) -> None:
        """Call back, from the loop and not from within a handler, for each signal received."""
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def deliver() -> None:
            for number in set(os.read(read_end, 4096)):
                callback(number)

        self.add(read_end, deliver)

    def run(self) -> None:
        """Run until `stop`."""
        while self._running:
            timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(timeout):
                # An earlier callback of this round may have closed it, and opened another with its number.
                current = self._selector.get_map().get(key.fd)
                if current is not None and current.data is key.data:
                    key.data()
            now = time.monotonic()
            while self._running and self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def stop(self) -> None:
        """Let `run` return."""
        self._running = False
