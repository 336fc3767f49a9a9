"""Where a run is written."""

from pathlib import Path

from ddp_repro.config import OutputConfig
from ddp_repro.trace.folder import claim_run_folder, open_run_folder
from ddp_repro.trace.layout import RunFolder


def place_run(output: OutputConfig) -> RunFolder:
    """Return the run's folder, claimed for this run alone; raise ReproError where it holds another run."""
    if not output.dir:
        return claim_run_folder(Path(output.root))
    return open_run_folder(Path(output.dir), overwrite=output.overwrite)
