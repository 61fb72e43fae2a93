"""The largest norm of a row after LayerNorm or RMSNorm, from the parameters alone."""

import math

import numpy as np
from scipy.optimize import brentq
from torch import Tensor


def norm_radius(weight: Tensor, bias: Tensor | None = None) -> float:
    """Return R = max |a o z + b| over |z| <= sqrt(d): no output row of a LayerNorm or RMSNorm is longer.

    Both norms return a o z + b with |z| <= sqrt(d) for any input: z is the row divided by its own size, which their eps
    only makes smaller. RMSNorm has no b, and then R = max |a_i| sqrt(d).

    Parameters
    ----------
    weight : Tensor (d,)
        a, the factors of the norm.
    bias : Tensor (d,), optional
        b, the offsets of the norm; default: zero.

    Notes
    -----
    The maximum of a convex function is on the sphere, where with c = a o b and t >= max a_i^2

        |a o z + b|^2 <= t d + |b|^2 + sum_i c_i^2 / (t - a_i^2),

    with equality at z_i = c_i / (t - a_i^2) for the t with |z|^2 = d (the secular equation). If c is zero at the
    largest a_i^2 there may be no such t: then t = max a_i^2 is optimal, and the rest of |z|^2 is in those coordinates.
    The right side is returned, so that an inexact root is still an upper bound. That LayerNorm also subtracts the mean
    is not used: it would gain about one part in d. O(d) per iteration, in float64; the norm's own rounding is not
    included.
    """
    a = weight.detach().cpu().double().numpy()
    b = np.zeros_like(a) if bias is None else bias.detach().cpu().double().numpy()
    top = float((a * a).max())
    c = np.abs(a * b)
    some = c * c > 0
    gaps, c = (top - a * a)[some], c[some]
    root = math.sqrt(len(a))

    def secular(s: float) -> float:
        """Zero where |c / (gaps + s)| = root, and nearly linear."""
        return root * float(1.0 / np.linalg.norm(c / (gaps + s))) - 1.0

    excess = float(np.linalg.norm(c[gaps == 0])) / root  # t - top, if the largest coordinates alone reach the sphere
    if len(c) and secular(excess) < 0.0:  # otherwise this is the hard case, with excess 0
        most = float(np.linalg.norm(c)) / root  # as if there were no gaps
        found = secular(most) > 0.0
        excess = float(brentq(secular, excess, most, xtol=1e-300, rtol=1e-14, maxiter=500)) if found else most
    return math.sqrt((top + excess) * len(a) + float(b @ b) + float((c * c / (gaps + excess)).sum()))
