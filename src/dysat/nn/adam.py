"""The Adam optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam:
    """Torch's fused Adam without its `Optimizer` class, which imports torch's compiler and adds two seconds to a fit.

    `state` holds the step and both moments of each parameter that had a gradient, in torch's layout. On CUDA, a
    learning rate that varies is stored in a tensor, so that a captured CUDA graph reads its current value.

    Of a table marked by `only_rows`, only the rows with a gradient are updated, with their moments: the time of a step
    does not grow with the table. A row that is not used keeps its moments, where Adam would let them decay.
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
        for p in updated:
            if has_only_rows(p):
                self._step_rows(p)
        updated = [p for p in updated if not has_only_rows(p)]
        steps, means, squares = ([self.state[p][name] for p in updated] for name in ("step", "exp_avg", "exp_avg_sq"))
        adam(
            cast(list[Tensor], updated), [gradient(p) for p in updated], means, squares, [], steps,
            fused=True, capturable=self.capturable, amsgrad=False, maximize=False, beta1=BETAS[0], beta2=BETAS[1],
            lr=self.rate if self.rate_tensor is None else self.rate_tensor, weight_decay=0.0, eps=EPSILON,
        )  # fmt: skip

    def _step_rows(self, p: nn.Parameter) -> None:
        grad, state = gradient(p), self.state[p]
        state["step"] += 1
        rows, step = rows_of(p), float(state["step"])
        mean = state["exp_avg"].index_select(0, rows).lerp_(grad, 1 - BETAS[0])
        square = state["exp_avg_sq"].index_select(0, rows).mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
        state["exp_avg"].index_copy_(0, rows, mean)
        state["exp_avg_sq"].index_copy_(0, rows, square)
        root = (square / (1 - BETAS[1] ** step)).sqrt_().add_(EPSILON)
        p.index_add_(0, rows, mean.div_(root), alpha=-self.rate / (1 - BETAS[0] ** step))


def only_rows(p: nn.Parameter) -> None:
    """Mark a large table: its gradient then has only the rows that `look_up` returned, and only they are updated."""
    p.only_rows = True  # type: ignore[attr-defined]


def has_only_rows(p: Tensor) -> bool:
    """Whether a parameter is marked by `only_rows`."""
    return getattr(p, "only_rows", False)


def gradient(p: nn.Parameter) -> Tensor:
    """Return a parameter's gradient, or that of its `rows_of`; if it has none, zeros."""
    if has_only_rows(p):
        if p.grad is None:
            return p.detach()[:0]
        if not p.grad.is_coalesced():
            p.grad = p.grad.coalesce()
        return p.grad._values()
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad


def rows_of(p: nn.Parameter) -> Tensor:
    """The rows of a table that its `gradient` belongs to.  # [R]"""
    gradient(p)
    return torch.empty(0, dtype=torch.int64, device=p.device) if p.grad is None else p.grad._indices()[0]


def set_rows(p: nn.Parameter, rows: Tensor, values: Tensor) -> None:
    """Set the gradient of a table marked by `only_rows`; values of the same row are added.  # [R], [R, d]"""
    p.grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, p.shape, check_invariants=False).coalesce()


def in_use(p: nn.Parameter) -> Tensor:
    """The values of a parameter, or those of its `rows_of`."""
    return p.detach().index_select(0, rows_of(p)) if has_only_rows(p) else p.detach()


def clip_gradients(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Scale all gradients together so that their norm is at most `most`."""
    if not any(has_only_rows(p) for p in parameters):
        nn.utils.clip_grad_norm_(parameters, most, foreach=True)
        return
    grads = [gradient(p) for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    torch._foreach_mul_(grads, (most / (norm + 1e-6)).clamp(max=1.0))
