"""A TCP port that no other world on this machine gets while this one starts."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a free port, held by a bound socket that does not listen until the context ends.

    The kernel gives a bound port to nobody who asks for a free one; the store of rank 0 can still listen on it, since
    both set SO_REUSEADDR and this socket never listens.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])
