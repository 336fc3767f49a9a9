"""At which address other nodes reach this one, and whether gloo will find that address by itself."""

import ipaddress
import socket

import psutil


def plain(address: str) -> str:
    """Return an address as people write it: IPv4 as IPv4, though it came over a socket for both."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or address)


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has this address."""
    for name, held in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address.partition("%")[0] for one in held):
            return str(name)
    return None


def misleading_name(address: str) -> str | None:
    """Return what this host's own name means, where that is an address at which no other node reaches it.

    ``address`` is one at which others do. Gloo listens at the first address of the host's own name that it can bind;
    Debian's installer writes 127.0.1.1 for it into /etc/hosts. ``None`` where gloo will do.
    """
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None  # all nodes are on this host
    try:
        meant = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "nothing"
    usable = [str(place[0]) for family, _, _, _, place in meant if _can_bind(family, place)]
    if usable and not ipaddress.ip_address(usable[0].partition("%")[0]).is_loopback:
        return None
    return usable[0] if usable else ", ".join(dict.fromkeys(str(place[0]) for *_, place in meant))


def _can_bind(family: int, place: tuple[object, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        try:
            attempt.bind((place[0], 0, *place[2:]))
        except OSError:
            return False
    return True
