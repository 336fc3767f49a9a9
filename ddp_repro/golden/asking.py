"""What is asked of a golden, and what of it is refused before anything is launched."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ddp_repro
from ddp_repro.config import CaptureLevel, CheckConfig, GoldenLevel
from ddp_repro.continuous_integration import in_ci
from ddp_repro.errors import ReproError
from ddp_repro.judge.golden import Keeping
from ddp_repro.run.driver import Invocation
from ddp_repro.trace.golden_folder import GoldenFolder
from ddp_repro.trace.layout import RunFolder

_EXAMPLE: Final = "golden.path=tests/goldens/training"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The check that is held against a golden: its configuration, how it was called, its folder, its environment."""

    config: CheckConfig
    invocation: Invocation
    run: RunFolder
    environ: Mapping[str, str]

    @property
    def folder(self) -> GoldenFolder:
        """The folder of goldens."""
        assert self.config.golden.path, "only a check with golden.path is held against one"
        return GoldenFolder(Path(self.config.golden.path))

    @property
    def keeping(self) -> Keeping:
        """How much of a launch is kept."""
        return Keeping(
            level=self.config.golden.level.value, ignore=tuple(self.config.judge.ignore), observer=observer_digest()
        )

    @property
    def is_in_ci(self) -> bool:
        """Whether this runs where goldens are neither made nor written over."""
        return in_ci(self.environ)

    @property
    def accept(self) -> str:
        """The command that has the launch be the golden."""
        return self.invocation.again("golden.accept=true")


def observer_digest() -> str:
    """Return a digest of the probes' source: other probes may see other things of the same training."""
    running = hashlib.sha256()
    for file in sorted(Path(ddp_repro.__file__).with_name("observe").rglob("*.py")):
        running.update(file.read_bytes())
    return running.hexdigest()[:16]


def validate_golden(config: CheckConfig, environ: Mapping[str, str]) -> None:
    """Raise ReproError for what no golden can be held against, and where none may be accepted."""
    golden = config.golden
    if not golden.path:
        _refuse_idle(config)
        return
    if golden.accept and in_ci(environ):
        raise ReproError(
            f"golden.accept=true is refused in CI (CI={environ['CI']}): a person accepts a golden.",
            hint="Accept it on a machine of your own, look at what changed, and commit the file.",
        )
    if config.twins:
        raise ReproError("golden.path and twins cannot be combined.", hint="Call check once with each of them.")
    if config.capture.level is CaptureLevel.off:
        raise ReproError("golden.path with capture=off would hold nothing.", hint="Use capture=step.")
    if Path(golden.path).exists() and not Path(golden.path).is_dir():
        raise ReproError(
            f"golden.path={golden.path} is a file; goldens lie in a folder, one for each identity.",
            hint=f"Name the folder: golden.path={Path(golden.path).parent}",
        )
    GoldenFolder(Path(golden.path)).files()


def _refuse_idle(config: CheckConfig) -> None:
    if not (config.golden.accept or config.golden.level is not GoldenLevel.step):
        return
    key = "golden.accept=true" if config.golden.accept else f"golden.level={config.golden.level.value}"
    raise ReproError(f"{key} would do nothing: no golden is named.", hint=f"Name its folder: {_EXAMPLE}")
