"""The training of ``record``, with nothing of ddp_repro around it but the loop: what `check_launches` compares with.

Started by torchrun: ``torchrun --standalone --nproc-per-node 2 benchmarks/bare_train.py workload.size=small …``.
"""

import sys

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.config import RecordConfig
from ddp_repro.run import determinism
from ddp_repro.run.course import Course
from ddp_repro.run.root_seed import seed_everything, seed_training
from ddp_repro.run.saving import Saving
from ddp_repro.run.train import prepare, train
from ddp_repro.run.world import exit_now, join, leave, read_place
from ddp_repro.workload.factory import load_workload


def main() -> None:
    ConfigStore.instance().store(name="record_schema", node=RecordConfig)
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        config = OmegaConf.to_object(compose("record", sys.argv[1:]))
    assert isinstance(config, RecordConfig)
    config.determinism.hash_seed = None  # torchrun has started this interpreter already
    determinism.apply(config.determinism)
    seed_everything(config.seed)
    options = {key: value for key, value in config.workload.items() if key != "_target_"}
    workload = load_workload(config.workload["_target_"], options)
    place = read_place(config.launcher.backend)
    join(place, config.launcher)
    session = prepare(config, place, workload)
    seed_training(place.shard)
    course = Course()
    saving = Saving(session, course, {})
    saving.load()
    train(session, course, saving.after_step)
    del session, workload, saving
    leave()
    exit_now(0)


if __name__ == "__main__":
    main()
