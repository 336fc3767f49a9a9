"""A generator and a discriminator; saves, goes on, or does either of them wrong."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--every", type=int)
    parser.add_argument("--resume")
    parser.add_argument("--wrong", choices=["saves nothing", "fails to load", "begins anew", "half the moments"])
    return parser.parse_args()


def save(parts, path, step):
    os.makedirs(path, exist_ok=True)
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save({**state, "rng": torch.get_rng_state(), "step": step}, f"{path}/{dist.get_rank()}.pt")


def load(parts, path, wrong):
    if wrong == "begins anew":
        return 0
    name = "last" if wrong == "fails to load" else dist.get_rank()
    state = torch.load(f"{path}/{name}.pt")
    for name, part in parts.items():
        if not (wrong == "half the moments" and name == "generator's optimizer"):
            part.load_state_dict(state[name])
    torch.set_rng_state(state["rng"])
    return state["step"]


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), find_unused_parameters=True)
    critic = DDP(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)), find_unused_parameters=True)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    parts = {"generator": generator, "critic": critic}
    parts |= {"generator's optimizer": of_generator, "critic's optimizer": of_critic}
    real = torch.randn(96, 2)
    torch.manual_seed(1 + dist.get_rank())
    step = load(parts, args.resume, args.wrong) if args.resume else 0
    judge = nn.functional.binary_cross_entropy_with_logits
    while step < 8:
        x = real[(3 * step + dist.get_rank()) * 4 :][:4]
        fake = generator(torch.randn(4, 4))
        of_critic.zero_grad()
        (judge(critic(x), torch.ones(4, 1)) + judge(critic(fake.detach()), torch.zeros(4, 1))).backward()
        of_critic.step()
        of_generator.zero_grad()
        critic.requires_grad_(False)
        judge(critic(fake), torch.ones(4, 1)).backward()
        critic.requires_grad_(True)
        of_generator.step()
        step += 1
        due = step == args.stop_after or (args.every and step % args.every == 0)
        if args.save and due and args.wrong != "saves nothing":
            save(parts, args.save, step)


if __name__ == "__main__":
    main()
