"""A small text classifier; the checkpoint says in which epoch it was written."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SENTENCES = [
    f"{adjective} {noun} {verb}"
    for adjective in ("red", "old", "big", "shy")
    for noun in ("cat", "ship", "tree", "king", "road")
    for verb in ("sleeps", "falls", "sings")
]


class Bags(Dataset):
    def __len__(self):
        return len(SENTENCES)

    def __getitem__(self, index):
        bag = torch.zeros(26)
        for letter in SENTENCES[index].replace(" ", ""):
            bag[ord(letter) - 97] += 1
        return bag, int("cat" in SENTENCES[index])


class Trainer:
    def __init__(self, args):
        self.args = args
        self.dataset = Bags()
        self.sampler = DistributedSampler(self.dataset, seed=11)
        self.loader = DataLoader(self.dataset, batch_size=4, sampler=self.sampler)
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(26, 10), nn.ReLU(), nn.Linear(10, 2))
        self.model = DDP(net, find_unused_parameters=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.8, nesterov=True)
        self.epoch = self.batch = self.step = 0
        if args.resume:
            self.load(args.resume)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step = state["epoch"], state["step"]

    def save(self, path, batch):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"epoch": self.epoch, "batch": batch, "step": self.step}
        if dist.get_rank() == 0:
            torch.save(state, path)
        dist.barrier()

    def train(self):
        while self.epoch < 2:
            self.sampler.set_epoch(self.epoch)
            for batch, (bags, labels) in enumerate(self.loader):
                if batch < self.batch:
                    continue
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(bags), labels).backward()
                self.optimizer.step()
                self.step += 1
                if self.step == self.args.stop_after:
                    self.save(self.args.save, batch + 1)
                    return
            self.batch = 0
            self.epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    dist.init_process_group("gloo")
    Trainer(parser.parse_args()).train()
