"""How the drivers of several nodes come together: driver 0 listens, and says where in torchrun's store."""

import hmac
import json
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ddp_repro.errors import ReproError
from ddp_repro.run.nodes.link import Link, silence_of
from ddp_repro.run.nodes.place import NodePlace, called

_KEY: Final = "drivers"
_HELLO_S: Final = 10.0
_RETRY_S: Final = 0.2
_EVERYWHERE: Final = "Start the same command on every node, with the same --nnodes, --master-addr and --master-port."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """The driver of another node, as driver 0 knows it: the connection to it, and what it said of itself."""

    node: int
    link: Link
    hello: dict[str, Any]

    @property
    def called(self) -> str:
        """Return what its node is called."""
        return called(self.node, str(self.hello.get("host", "")))


@dataclass(slots=True)
class Hall:
    """Where drivers meet; ``store`` is kept as long as others may look there."""

    listener: socket.socket
    store: Store | None = None

    def close(self) -> None:
        """Let nobody in any more."""
        self.listener.close()
        self.store = None


def gather(place: NodePlace, timeout_s: float) -> tuple[Hall, list[Guest]]:
    """Wait for the drivers of all other nodes and return them, in order of their numbers.

    Raises ReproError where one does not come within ``timeout_s``; those that came are told by their connection.
    """
    token, deadline = secrets.token_hex(16), time.monotonic() + timeout_s
    hall = Hall(_listener())
    guests: dict[int, Guest] = {}
    try:
        told = {"port": hall.listener.getsockname()[1], "token": token}
        hall.store = _with_store(place, timeout_s, lambda store: store.set(_KEY, json.dumps(told)))
        while len(guests) < place.nodes - 1:
            if time.monotonic() > deadline:
                raise _absent(place, guests, timeout_s)
            guest = _let_in(hall.listener, token, timeout_s)
            if guest is not None and 0 < guest.node < place.nodes:
                guests[guest.node] = guest
    except BaseException:
        hall.close()
        for guest in guests.values():
            guest.link.close()
        raise
    return hall, [guests[node] for node in sorted(guests)]


def reach(place: NodePlace, hello: Callable[[str], dict[str, Any]], timeout_s: float) -> Link:
    """Return the connection to driver 0, which was told what ``hello`` says, given the address of this node.

    Raises ReproError where it cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    found: list[bytes] = []
    _with_store(place, timeout_s, lambda store: found.append(store.get(_KEY)))
    told = json.loads(found[0])
    while True:
        try:
            connection = socket.create_connection((place.address, told["port"]), timeout=_HELLO_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ReproError(
                    f"node 0 cannot be reached at {place.address} port {told['port']}: {error.strerror or error}.",
                    hint="Drivers and ranks connect to free ports of each other's: nodes must be able to.",
                ) from error
            time.sleep(_RETRY_S)
            continue
        link = Link(connection, silence_of(timeout_s))
        link.send({"token": told["token"], "node": place.node, **hello(link.own_address)})
        return link


def _listener() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _let_in(listener: socket.socket, token: str, timeout_s: float) -> Guest | None:
    """Return the driver that knocked, if one did within a moment and knows the token."""
    listener.settimeout(_RETRY_S)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return None
    link = Link(connection, silence_of(timeout_s))
    frame = link.wait(_HELLO_S)
    if frame is None or not hmac.compare_digest(str(frame.says.get("token", "")), token):
        link.close(linger_s=0.0)
        return None
    return Guest(node=int(frame.says.get("node", 0)), link=link, hello=frame.says)


def _absent(place: NodePlace, guests: dict[int, Guest], timeout_s: float) -> ReproError:
    absent = [node for node in range(1, place.nodes) if node not in guests]
    names = f"node {absent[0]}" if len(absent) == 1 else f"nodes {', '.join(map(str, absent))}"
    return ReproError(
        f"the driver of {names} did not come within {timeout_s:g} s (launcher.timeout_s): "
        f"{len(guests) + 1} of {place.nodes} nodes are here.",
        hint=f"{_EVERYWHERE} What keeps {names} away stands in its own output.",
    )


def _await_listener(place: NodePlace, timeout_s: float) -> None:
    """Wait until the store can be reached: where it cannot, torch itself prints pages."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((place.address, place.port), timeout=_HELLO_S).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _with_store(place: NodePlace, timeout_s: float, use: Callable[[Store], object]) -> Store:
    """Return torchrun's store after ``use`` of it.

    It is used in a thread, since a call to it can wait for ever where the network is cut, deaf to signals.
    """
    outcome: queue.SimpleQueue[Store | Exception] = queue.SimpleQueue()
    limit = timedelta(seconds=timeout_s)

    def work() -> None:
        try:
            if not place.hosts_store:
                _await_listener(place, timeout_s)
            whole = TCPStore(
                place.address, place.port, is_master=place.hosts_store, timeout=limit, wait_for_workers=False
            )
            store = PrefixStore(f"ddp_repro/{place.attempt}", whole)
            use(store)
        except Exception as error:  # noqa: BLE001  raised again by who waits
            outcome.put(error)
        else:
            outcome.put(store)

    began = time.monotonic()
    threading.Thread(target=work, name="ddp_repro-store", daemon=True).start()
    with suppress(queue.Empty):
        found = outcome.get(timeout=timeout_s + _RETRY_S)
        if isinstance(found, Store):
            return found
    when = f"for {timeout_s:g} s (launcher.timeout_s)"
    if time.monotonic() - began < timeout_s / 2:
        when = "before it or its torchrun ended"
    raise ReproError(
        f"nothing was heard of driver 0 at {place.address} port {place.port} {when}.",
        hint=f"{_EVERYWHERE} What keeps driver 0 away stands in its own output.",
    )
