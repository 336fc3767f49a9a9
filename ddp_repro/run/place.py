"""Where a run is written."""

from pathlib import Path

from ddp_repro.config import OutputConfig
from ddp_repro.errors import ReproError
from ddp_repro.trace.folder import claim_run_folder, open_run_folder
from ddp_repro.trace.layout import RunFolder, SummaryFiles


def place_run(output: OutputConfig) -> RunFolder:
    """Return the run's folder, claimed for this run alone; raise ReproError where it holds another run."""
    if not output.dir:
        return claim_run_folder(Path(output.root))
    return open_run_folder(Path(output.dir), overwrite=output.overwrite)


def place_sweep(output: OutputConfig) -> SummaryFiles:
    """Return the folder of several runs, each of which has its own; raise ReproError where it holds others already."""
    if not output.dir:
        return SummaryFiles(claim_run_folder(Path(output.root)).path)
    files = SummaryFiles(Path(output.dir))
    if files.document.exists() and not output.overwrite:
        raise ReproError(
            f"{files.path} already holds a sweep", hint="name another folder, or pass output.overwrite=true"
        )
    return SummaryFiles(open_run_folder(files.path, overwrite=False).path)
