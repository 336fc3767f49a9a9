"""A connection between two drivers that shows within seconds when the other one is gone, whatever either is doing."""

import queue
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final

from ddp_repro.run.nodes.addresses import plain
from ddp_repro.run.nodes.frames import Frame, FrameError, FrameReader, packed

BEAT_S: Final = 1.0
_LONGEST_SILENCE_S: Final = 60.0
_SHORTEST_SILENCE_S: Final = 3 * BEAT_S
_CHUNK: Final = 1 << 16
_SIGN_OF_LIFE: Final = packed(Frame(says={}))


def silence_of(timeout_s: float) -> float:
    """Return how long a driver may say nothing, where a step may take ``timeout_s``."""
    return min(_LONGEST_SILENCE_S, max(_SHORTEST_SILENCE_S, timeout_s / 2))


class Link:
    """A connection to the driver of another node.

    A thread of its own sends, receives, and gives a sign of life every ``BEAT_S``: whoever is silent for ``silence_s``
    is lost, be it that it died, hangs, or that the network is cut. Signals can interrupt a driver anywhere but there,
    so that no message is ever sent in part.
    """

    def __init__(self, connection: socket.socket, silence_s: float) -> None:
        self.lost = ""  # why nothing more comes of it
        self.own_address = plain(connection.getsockname()[0])
        self.address = plain(connection.getpeername()[0])
        self._connection = connection
        self._silence_s = silence_s
        self._received: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._closing = False
        self._reader = FrameReader()
        self._heard = self._beaten = time.monotonic()
        self._wake, self._woken = socket.socketpair()
        for one in (connection, self._wake, self._woken):
            one.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._serve, name="ddp_repro-link", daemon=True)
        self._thread.start()

    def send(self, says: dict[str, Any], block: bytes = b"") -> None:
        """Send a message; never waits, and does nothing once the other driver is lost."""
        with self._lock:
            self._unsent += packed(Frame(says=says, block=block))
        with suppress(OSError):
            self._wake.send(b"\0")

    def take(self) -> list[Frame]:
        """Return what has arrived."""
        frames = []
        with suppress(queue.Empty):
            while True:
                frame = self._received.get_nowait()
                if frame is not None:
                    frames.append(frame)
        return frames

    def wait(self, timeout_s: float) -> Frame | None:
        """Return the next message; ``None`` where none arrives within ``timeout_s``, or none can arrive any more."""
        with suppress(queue.Empty):
            return self._received.get(timeout=0 if self.lost and self._received.empty() else timeout_s)
        return None

    def close(self, linger_s: float = 5.0) -> None:
        """Send what is left to send, and close."""
        self._closing = True
        with suppress(OSError):
            self._wake.send(b"\0")
        self._thread.join(linger_s)
        self._lose("it was closed")

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._connection, selectors.EVENT_READ)
            while not self.lost and not (self._closing and not self._unsent):
                self._keep_time()
                writing = selectors.EVENT_WRITE if self._unsent else 0
                selector.modify(self._connection, selectors.EVENT_READ | writing)
                self._exchange({key.fileobj: mask for key, mask in selector.select(BEAT_S / 2)})
        self._take_leave()

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now - self._heard > self._silence_s:
            self._lose(f"nothing was heard from it for {self._silence_s:g} s")
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            with self._lock:
                self._unsent += b"" if self._unsent else _SIGN_OF_LIFE  # much under way is a sign of life

    def _exchange(self, ready: dict[Any, int]) -> None:
        if self._woken in ready:
            with suppress(OSError):
                self._woken.recv(_CHUNK)
        if ready.get(self._connection, 0) & selectors.EVENT_READ:
            self._receive()
        if ready.get(self._connection, 0) & selectors.EVENT_WRITE and not self.lost:
            self._write()

    def _receive(self) -> None:
        try:
            chunk = self._connection.recv(_CHUNK)
            frames = self._reader.feed(chunk)
        except BlockingIOError:
            return
        except FrameError as error:
            self._lose(f"it sent {error}")
            return
        except OSError as error:
            self._lose(f"its connection broke: {error.strerror}")
            return
        self._heard = time.monotonic()
        for frame in frames:
            if frame.says:
                self._received.put(frame)
        if not chunk:
            self._lose("its driver is gone")

    def _write(self) -> None:
        with self._lock:
            chunk = bytes(self._unsent[:_CHUNK])
        try:
            sent = self._connection.send(chunk)
        except BlockingIOError:
            return
        except OSError:
            while not self.lost:  # what it said before it left is still to be read
                self._receive()
                self._keep_time()
                time.sleep(0.01)
            return
        with self._lock:
            del self._unsent[:sent]

    def _take_leave(self) -> None:
        """Close in order: what is sent after the other one closed would destroy what it has not read yet."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            self._connection.settimeout(1.0)
            while self._closing and self._connection.recv(_CHUNK):
                pass
        for one in (self._connection, self._wake, self._woken):
            one.close()

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._received.put(None)  # whoever waits need not wait longer
