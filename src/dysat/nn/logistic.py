"""Logistic regression by Newton's method, many small problems at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

STEP_SIZES = (4.0, 2.0, *(0.5**k for k in range(12)), 0.0)  # tried by the line search; 0 stays in place
# Sizes that are tried, and the first of them that is enough if it is the best and not the last: the loss is convex, so
# that no other size is better. Several problems rarely agree on the first choice.
TRIED = (slice(1, 4), 1), (slice(0, 4), 0), (slice(None), 0)
TOLERANCE = 1e-10  # stop if another step would reduce the loss by less than this fraction
MAX_STEPS = 100
MANY_ROWS, MANY_COLUMNS = 4_096, 20  # from which a Hessian costs far more than a step
HESSIAN_ROWS = 1 << 16  # of more, every second or third row is enough: the gradient decides where steps end
CACHED_ROWS = 1_024  # that stay in the cache of a core
FAST = 0.1  # steps gain fast if the next gains at most this fraction
ROUNDING = 1e-9  # a deviation this small, relative to the mean, is that of a constant
RIDGE, ROUNDED_RIDGE = 1e-12, 1e-6  # keep a Hessian positive definite; they change the steps, not the minimum


def fit_logistic(
    x: Tensor,
    y: Tensor,
    *,
    l2: float | Tensor = 1.0,
    sample_weight: Tensor | None = None,
    differences: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the w and b that minimize `½‖w‖² + C Σ log(1 + exp(∓(w·x + b)))` with C = 1 / l2, in float64.

    `differences` are rows z = x − x' of examples x that should rank above x': each adds `C log(1 + exp(−w·z))`.

    This is scikit-learn's objective: raw features, and no penalty on the bias. Leading axes are separate problems,
    solved together. If a class is missing, the weights are 0 and the bias is the log-odds with half an example added
    to each class. NaN in x gives NaN weights.

    Shapes:
        - x: [..., B, d]; y: [..., B], 0 or 1
        - l2: one number, or one per feature [d]
        - sample_weight: [..., B]; an example of weight 0 does not count
        - differences: [..., P, d]
        - output: w [..., d], b [...]
    """
    return logistic_fitter(x, y, l2=l2, sample_weight=sample_weight, differences=differences)()


@torch.no_grad()
def logistic_fitter(
    x: Tensor,
    y: Tensor,
    *,
    l2: float | Tensor = 1.0,
    sample_weight: Tensor | None = None,
    differences: Tensor | None = None,
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return a function that returns what `fit_logistic` does, and no longer needs x, so that it can be freed."""
    x, y = x.double(), y.double()
    weight = torch.ones_like(y) if sample_weight is None else sample_weight.double()
    positive, negative = (weight * y).sum(-1), (weight * (1 - y)).sum(-1)  # [...]
    weight = weight * ((positive > 0) & (negative > 0)).unsqueeze(-1)  # a single class has no finite minimum
    # Shifting the features changes only the bias, and centred features keep the Hessian well conditioned.
    centre = x.sum(-2) / max(x.shape[-2], 1)  # [..., d]
    number, others = x.shape[-2], 0 if differences is None else differences.shape[-2]
    signed = x.new_zeros(*x.shape[:-2], number + others, x.shape[-1] + 1)  # [..., B + P, d + 1]
    labelled = signed[..., :number, :]
    torch.sub(x, centre.unsqueeze(-2), out=labelled[..., :-1])
    labelled[..., -1] = 1.0
    labelled *= (2 * y - 1).unsqueeze(-1)
    if differences is not None:
        signed[..., number:, :-1] = differences
        weight = functional.pad(weight, (0, others), value=1.0)
    penalty = functional.pad(torch.as_tensor(l2).to(x).expand(x.shape[-1]), (0, 1))  # [d + 1]
    bias = ((positive + 0.5) / (negative + 0.5)).log()
    start = functional.pad(bias.unsqueeze(-1), (x.shape[-1], 0))  # [..., d + 1]

    @torch.no_grad()
    def fit() -> tuple[Tensor, Tensor]:
        theta = _newton(signed, weight, penalty, start)
        w, b = theta[..., :-1], theta[..., -1]
        return w, b - (w * centre).sum(-1)

    return fit


def mean_and_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column; 1 if only rounding makes it vary.  # [B, d] → [d], [d]"""
    means, squares = x.mean(0), x.new_zeros(x.shape[1])
    for part in torch.split(x, CACHED_ROWS if x.is_cpu else max(1, len(x))):
        squares += (part - means).square_().sum(0)
    deviation = (squares / len(x)).sqrt()
    return means, torch.where(deviation > ROUNDING * (1 + means.abs()), deviation, 1.0)


def _newton(signed: Tensor, weight: Tensor, penalty: Tensor, theta: Tensor) -> Tensor:
    """Minimize `Σ weight · log(1 + exp(−signed·θ)) + ½ penalty·θ²`, taking the best of a few sizes of each step.

    With many rows the Hessian is summed in float32, from some of them if they are very many, and kept while steps gain
    fast.
    """
    sizes = torch.tensor(STEP_SIZES, dtype=theta.dtype, device=theta.device)
    sizes = sizes.reshape(-1, *[1] * theta.dim())  # [S, ..., 1]
    margin = _matvec(signed, theta)  # [..., B]
    costly = signed.shape[-2] >= MANY_ROWS and signed.shape[-1] >= MANY_COLUMNS
    rounded = signed.float() if costly else signed
    every = max(1, -(-signed.shape[-2] // HESSIAN_ROWS))
    gain, kept = torch.full_like(theta[..., 0], torch.inf), None
    for _ in range(MAX_STEPS):
        wrong = torch.sigmoid(-margin)  # probability of the other label
        gradient = penalty * theta - _matvec(signed.mT, weight * wrong)  # [..., d + 1]
        kept = kept or _Inverse(rounded, weight * wrong * torch.sigmoid(margin), penalty, every)
        step = kept.times(gradient)
        change = _matvec(signed, step)  # margins are linear in the step, so all sizes are cheap
        for part, least in TRIED[theta.dim() > 1 :]:
            tried = sizes[part]
            losses = -(weight * functional.logsigmoid(margin - tried * change)).sum(-1)
            losses = losses + 0.5 * (penalty * (theta - tried * step).square()).sum(-1)  # [S, ...]
            loss, best = losses.min(0)
            if ((best >= least) & (best < len(tried) - 1)).all():
                break
        size = tried.flatten()[best].unsqueeze(-1)  # [..., 1]
        theta, margin = theta - size * step, margin - size * change
        before, gain = gain, (gradient * step).sum(-1)
        moved = size.squeeze(-1) > 0
        if not ((gain > TOLERANCE * loss) & moved).any():
            if rounded is signed or moved.all():
                break
            rounded, kept, every = signed, None, 1  # float32 was not enough for features of such scales
        elif rounded is signed or not (gain < FAST * before).all():
            kept = None
    return theta


class _Inverse:
    """The inverse of a Hessian with unit diagonal, so that features of very different scales stay accurate.

    With `every` above 1 it is estimated from every second row, or every third, and so on.

    Shapes: signed [..., B, d], curvature [..., B], penalty [d]
    """

    def __init__(self, signed: Tensor, curvature: Tensor, penalty: Tensor, every: int = 1) -> None:
        signed, curvature = signed[..., ::every, :], every * curvature[..., ::every]
        whole = (signed * curvature.to(signed.dtype).unsqueeze(-1)).mT @ signed
        hessian = whole.double() + penalty.diag()  # [..., d, d]
        self.scale = hessian.diagonal(dim1=-2, dim2=-1).clamp(min=torch.finfo(hessian.dtype).tiny).rsqrt()
        scaled = hessian * self.scale.unsqueeze(-1) * self.scale.unsqueeze(-2)
        scaled.diagonal(dim1=-2, dim2=-1).add_(RIDGE if signed.dtype == torch.double else ROUNDED_RIDGE)
        self.factor, _ = torch.linalg.cholesky_ex(scaled)

    def times(self, gradient: Tensor) -> Tensor:
        """Return H⁻¹ g.  # [..., d] → [..., d]"""
        scaled = (gradient * self.scale).unsqueeze(-1)
        return torch.cholesky_solve(scaled, self.factor).squeeze(-1) * self.scale


def _matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
