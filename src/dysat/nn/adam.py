"""Adam, and the gradients it goes along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """Torch's fused Adam without its `Optimizer`, which imports torch's compiler: two seconds of every first fit.

    `state` holds, for each parameter that had a gradient, the step and both moments, as torch's does. On CUDA a rate
    that varies is a tensor, which a recorded step reads anew.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float, *, varies: bool = False) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self.capturable = any(p.device.type == "cuda" for p in parameters)
        self.read = torch.tensor(rate, device=parameters[0].device) if varies and self.capturable else None

    def set_rate(self, rate: float) -> None:
        """That of the next steps."""
        self.rate = rate
        if self.read is not None:
            self.read.fill_(rate)

    def zero_grad(self) -> None:
        """No gradient yet."""
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step along the gradients there are."""
        some = [p for p in self.parameters if p.grad is not None]
        for p in some:
            if p not in self.state:
                step = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        steps, means, squares = ([self.state[p][name] for p in some] for name in ("step", "exp_avg", "exp_avg_sq"))
        adam(
            cast(list[Tensor], some), [gradient(p) for p in some], means, squares, [], steps,
            fused=True, capturable=self.capturable, amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, lr=self.rate if self.read is None else self.read, weight_decay=0.0, eps=1e-8,
        )  # fmt: skip


def gradient(p: nn.Parameter) -> Tensor:
    """That of a parameter; zeros where there was none."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad
