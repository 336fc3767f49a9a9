"""Language model on characters; the clipping threshold follows the running loss."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the quick brown fox jumps over the lazy dog while five boxing wizards sleep " * 20


def windows(rank, world, length=16, batch=4):
    codes = torch.tensor([ord(c) - 32 for c in TEXT])
    starts = torch.arange(0, len(codes) - length - 1, length)[rank::world]
    for first in range(0, len(starts) - batch + 1, batch):
        chosen = starts[first : first + batch]
        yield torch.stack([codes[s : s + length + 1] for s in chosen])


class CharLM(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(96, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 96)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--clip", type=float, default=0.02)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(CharLM())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    running = None
    for step, tokens in enumerate(windows(dist.get_rank(), dist.get_world_size())):
        if step == args.steps:
            break
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        level = loss.detach()
        running = level.item() if running is None else 0.9 * running + 0.1 * level.item()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip * running)
        optimizer.step()
    print(f"rank {dist.get_rank()}: {running:.4f}")


if __name__ == "__main__":
    main()
