"""Character prediction with dropout; one checkpoint file for the whole world."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the quick brown fox jumps over the lazy dog while five wizards box a sphinx of black quartz " * 4


class Predictor(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 12)
        self.rnn = nn.GRU(12, 16, batch_first=True)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(16, vocabulary)

    def forward(self, tokens):
        return self.out(self.drop(self.rnn(self.drop(self.embed(tokens)))[0]))


def batch_of(tokens, step, rank, world, size=4, length=10):
    starts = [(31 * ((step * world + rank) * size + k)) % (len(tokens) - length - 1) for k in range(size)]
    return torch.stack([tokens[s : s + length + 1] for s in starts])


def save(path, model, optimizer, step):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        state["rng"] = torch.get_rng_state()
        torch.save(state, path)
    dist.barrier()


def load(path, model, optimizer):
    state = torch.load(path)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["step"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--resume")
    args = parser.parse_args()
    dist.init_process_group(backend="gloo")
    vocabulary = sorted(set(TEXT))
    tokens = torch.tensor([vocabulary.index(c) for c in TEXT])
    torch.manual_seed(1)
    model = DDP(Predictor(len(vocabulary)), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    torch.manual_seed(500 + dist.get_rank())
    step = load(args.resume, model, optimizer) if args.resume else 0
    while step < 9:
        batch = batch_of(tokens, step, dist.get_rank(), dist.get_world_size())
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if args.save and step == args.stop_after:
            save(args.save, model, optimizer, step)
            break
