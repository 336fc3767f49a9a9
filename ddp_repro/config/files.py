"""The resolved configuration of a run, as its folder keeps it in ``config.yaml``."""

from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ddp_repro.config.commands import CompareConfig
from ddp_repro.config.launch import RecordConfig
from ddp_repro.errors import ReproError


def save_config(config: RecordConfig | CompareConfig, path: Path) -> None:
    """Write the resolved configuration as YAML."""
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)), encoding="utf-8")


def load_record_config(path: Path) -> RecordConfig:
    """Read what a rank needs from the run's ``config.yaml``.

    Raises ReproError where the file is missing or is not such a configuration.
    """
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
        if not isinstance(loaded, dict):
            raise ReproError(f"{path} is not a run's configuration: it holds no keys.")
        known = {key: value for key, value in loaded.items() if key in RecordConfig.__dataclass_fields__}
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RecordConfig), known))
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ReproError(f"{path} is not a run's configuration: {error}") from error
    assert isinstance(config, RecordConfig)
    return config
