"""The Adam optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """Torch's fused Adam without its `Optimizer` class, which imports torch's compiler and adds two seconds to a fit.

    `state` holds the step and both moments of each parameter that had a gradient, in torch's layout. On CUDA, a
    learning rate that varies is stored in a tensor, so that a captured CUDA graph reads its current value.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float, *, varies: bool = False) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self.capturable = any(p.device.type == "cuda" for p in parameters)
        self.rate_tensor = torch.tensor(rate, device=parameters[0].device) if varies and self.capturable else None

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = rate
        if self.rate_tensor is not None:
            self.rate_tensor.fill_(rate)

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        updated = [p for p in self.parameters if p.grad is not None]
        for p in updated:
            if p not in self.state:
                step = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        steps, means, squares = ([self.state[p][name] for p in updated] for name in ("step", "exp_avg", "exp_avg_sq"))
        adam(
            cast(list[Tensor], updated), [gradient(p) for p in updated], means, squares, [], steps,
            fused=True, capturable=self.capturable, amsgrad=False, maximize=False, beta1=0.9, beta2=0.999,
            lr=self.rate if self.rate_tensor is None else self.rate_tensor, weight_decay=0.0, eps=1e-8,
        )  # fmt: skip


def gradient(p: nn.Parameter) -> Tensor:
    """Return a parameter's gradient; if it has none, set it to zeros first."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad
