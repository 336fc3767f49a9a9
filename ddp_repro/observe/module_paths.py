"""Which module's forward is under way: its path in the model, and the how-manieth call of it in the step."""

from collections import Counter
from typing import Final
from weakref import WeakKeyDictionary

from torch import nn

from ddp_repro.observe.names import Names, parameter_slots, plain_name, root_modules, unwrapped

_SEARCHES: Final = 32  # over all modules of the process, for one that was never met: a script may make them as it goes


class ModulePaths:
    """The forwards under way, outermost first.

    A module goes by its qualified name; a whole model, and what hangs in no model, by its class. The second call of a
    module in a step is told from the first: ``head``, then ``head(2)``.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._paths: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._stack: list[tuple[nn.Module, str]] = []
        self._calls: Counter[str] = Counter()
        self._searches = 0
        self._step = -1

    @property
    def current(self) -> str:
        """The innermost forward under way; empty where there is none."""
        return self._stack[-1][1] if self._stack else ""

    def begin_step(self, step: int) -> None:
        """Count calls anew, if this is another step than before."""
        if step != self._step:
            self._step = step
            self._calls.clear()

    def enter(self, module: nn.Module) -> None:
        """Take note that a forward begins."""
        path = self._path(module)
        self._calls[path] += 1
        count = self._calls[path]
        self._stack.append((module, path if count == 1 else f"{path}({count})"))

    def leave(self, module: nn.Module) -> str | None:
        """Take note that a forward ends, and return its path; what an exception left behind goes with it."""
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place][0] is module:
                path = self._stack[place][1]
                del self._stack[place:]
                return path
        return None

    def _path(self, module: nn.Module) -> str:
        known = self._paths.get(module)
        if known is not None:
            return known
        if not self._stack:
            self._search(module)
        own = self.current.partition("(")[0]
        return self._paths.setdefault(module, f"{own}.{_kind(module)}" if own else _kind(module))

    def _search(self, module: nn.Module) -> None:
        """Learn the paths of the model that a module belongs to."""
        if self._searches >= _SEARCHES:
            return
        self._searches += 1
        roots = [root for root in map(unwrapped, root_modules()) if any(part is module for part in root.modules())]
        if roots:
            self._learn(max(roots, key=lambda root: sum(1 for _ in root.modules())))

    def _learn(self, root: nn.Module) -> None:
        prefix = self._prefix(root)
        for name, part in root.named_modules():
            path = prefix + plain_name(name)
            self._paths.setdefault(part, path.removesuffix(".") if path else _kind(root))

    def _prefix(self, root: nn.Module) -> str:
        """Return what the names of the model's parameters begin with, as they were learned; else its class."""
        for slot in parameter_slots(root, ""):
            known = self._names.get(slot.owner[slot.key])
            if known is not None and known.endswith(slot.name):
                return known.removesuffix(slot.name)
        taken = set(self._paths.values())
        return f"{_kind(root)}." if _kind(root) in taken else ""


def _kind(module: nn.Module) -> str:
    return type(module).__name__
