"""A host whose own name leads gloo astray: what is done about it, and what is advised."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from ddp_repro.config import RecordConfig, is_script
from ddp_repro.run.launch_environment import launch_environment
from ddp_repro.run.nodes.addresses import interface_of, misleading_name

VARIABLE = "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnName:
    """A host's name and the address at which other nodes reach it.

    ``means`` is what the name means to the host itself, where no other node reaches it there (else empty),
    ``interface`` the one that has the address; ``is_set``: its ranks are told to use that one.
    """

    host: str = ""
    address: str = ""
    means: str = ""
    interface: str = ""
    is_set: bool = False

    @property
    def is_advised(self) -> bool:
        """Tell whether a user has to do something, should ranks not find each other."""
        return bool(self.means) and not self.is_set

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that this node's ranks are given because of it."""
        return {VARIABLE: self.interface} if self.is_set else {}

    def advice(self, node: str) -> str:
        """Return what is wrong on ``node`` and what is to be done, or was done."""
        wrong = f"the name {self.host} of {node} means {self.means} there, where no other node reaches it"
        if self.is_set:
            return f"{wrong}: {VARIABLE}={self.interface} was set for its ranks"
        interface = self.interface or f"<the interface that has {self.address}>"
        return f"{wrong}: set {VARIABLE}={interface} there, or mend /etc/hosts"


def own_name(address: str, config: RecordConfig, environ: Mapping[str, str]) -> OwnName:
    """Return what this host's name means; ``address`` is the one at which other nodes reach it.

    The variable moves no bit. It is set for what is built here; a script has the environment that its user gives it.
    """
    host, means = socket.gethostname(), misleading_name(address)
    if means is None or VARIABLE in launch_environment(config, environ):
        return OwnName(host=host, address=address)
    interface = interface_of(address) or ""
    return OwnName(
        host=host, address=address, means=means, interface=interface, is_set=bool(interface) and not is_script(config)
    )
