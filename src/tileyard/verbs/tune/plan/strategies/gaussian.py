"""A Gaussian process over features: its scales are learnt from targets, its posterior grows row by row."""

import math
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")
Floats = NDArray[np.float64]

ROOT: Final = math.sqrt(5.0)
JITTER: Final = 1e-6
USUAL_NOISE: Final = 1e-2
"""Variance of the noise that is expected, for targets of variance 1."""
STEPS: Final = 15
"""Most steps of an optimizer per fit; the next fit continues from its result."""


def in_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function with one thread of the BLAS: several wait for each other longer than such small matrices
    take, and others need the cores.
    """
    wrapped: Callable[P, R] = ThreadpoolController().wrap(limits=1, user_api="blas")(function)
    return wrapped


class Gaussian:
    """A Matern-5/2 kernel with one length scale per group of features, for targets of mean 0, variance 1.

    ``scales`` are logarithms: of the length per group, of the variance, and of the noise's variance. They
    maximize the targets' likelihood times a log-normal prior, whose lengths grow with the number of groups.
    """

    def __init__(self, groups: NDArray[np.int64]) -> None:
        self._groups = groups
        self._count = int(groups.max()) + 1 if len(groups) else 0
        length = math.log(0.5 * math.sqrt(max(1, self._count)))
        self._expected = np.array([*(length,) * self._count, 0.0, math.log(USUAL_NOISE)])
        self._spread = np.array([*(1.0,) * self._count, 0.5, 1.0])
        self._bounds = [*((-4.0, 4.0),) * self._count, (-3.0, 3.0), (-9.0, 0.0)]
        self.scales = self._expected

    @property
    def variance(self) -> float:
        """The variance before anything is known."""
        return math.exp(self.scales[-2])

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return math.exp(self.scales[-1]) + JITTER

    def covariance(self, one: Floats, other: Floats) -> Floats:
        """The covariance of each row of one with each of the other."""
        weights = np.exp(-self.scales[self._groups])
        one, other = one * weights, other * weights
        squares = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1) - 2 * one @ other.T
        away = ROOT * np.sqrt(np.maximum(squares, 0.0))
        result: Floats = self.variance * (1 + away + away * away / 3) * np.exp(-away)
        return result

    def fit(self, features: Floats, targets: Floats) -> None:
        """Adapt the scales to the targets, one per row of features."""
        count = len(targets)
        squares = np.zeros((self._count, count * count))
        for column, group in zip(features.T, self._groups, strict=True):
            squares[group] += np.square(column[:, None] - column).ravel()

        def loss(scales: Floats) -> tuple[float, Floats]:
            weights = np.exp(-2 * scales[: self._count])
            away = ROOT * np.sqrt(weights @ squares).reshape(count, count)
            decay = np.exp(scales[-2] - away)
            kernel = (1 + away + away * away / 3) * decay
            noisy = kernel + (math.exp(scales[-1]) + JITTER) * np.eye(count)
            beyond = (scales - self._expected) / self._spread
            try:
                root = cholesky(noisy, lower=True, check_finite=False)
            except LinAlgError:
                return 1e10, np.zeros_like(scales)
            inverse = cho_solve((root, True), np.eye(count), check_finite=False)
            solved = inverse @ targets
            value = targets @ solved / 2 + np.log(np.diag(root)).sum() + beyond @ beyond / 2
            slope = (inverse - np.outer(solved, solved)) / 2
            by_length = weights * (squares @ (slope * (5 / 3) * (1 + away) * decay).ravel())
            by_variance = np.vdot(slope, kernel)
            by_noise = math.exp(scales[-1]) * np.trace(slope)
            return float(value), np.array(
                [*by_length, by_variance, by_noise]
            ) + beyond / self._spread

        found = minimize(
            loss,
            self.scales,
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds,
            options={"maxiter": STEPS},
        )
        self.scales = found.x


class Posterior:
    """What a process knows of candidates from rows; a candidate becomes a row in O(rows x candidates).

    Targets come later, since covariances don't depend on them: a row without one (NaN) is believed to have
    the mean that those before it predict.
    """

    def __init__(self, process: Gaussian, rows: Floats, candidates: Floats, room: int) -> None:
        self._process = process
        self._candidates = candidates
        self._count = len(rows)
        most = self._count + room
        self._root = np.zeros((most, most))
        self._whitened = np.zeros((most, len(candidates)))
        noisy = process.covariance(rows, rows) + process.noise * np.eye(self._count)
        root = cholesky(noisy, lower=True, check_finite=False)
        shared = process.covariance(rows, candidates)
        whitened = solve_triangular(root, shared, lower=True, check_finite=False)
        self._root[: self._count, : self._count] = root
        self._whitened[: self._count] = whitened
        self._variances = process.variance - np.square(whitened).sum(axis=0)
        self._targets: Floats | None = None

    @property
    def has_room(self) -> bool:
        """Whether another candidate can become a row."""
        return self._count < len(self._root)

    @property
    def deviations(self) -> Floats:
        """The standard deviation of each candidate."""
        result: Floats = np.sqrt(np.maximum(self._variances, 1e-10))
        return result

    def draw(self, noise: Floats) -> Floats:
        """Joint draws of all candidates around their means, one per column of standard normal numbers."""
        known = self._whitened[: self._count]
        joint = self._process.covariance(self._candidates, self._candidates) - known.T @ known
        joint += JITTER * np.eye(len(joint))
        result: Floats = cholesky(joint, lower=True, check_finite=False) @ noise
        return result

    def add(self, candidate: int) -> None:
        """Make a candidate the last row."""
        count = self._count
        known = self._whitened[:count]
        line = known[:, candidate].copy()
        left = self._process.variance + self._process.noise - float(line @ line)
        own = math.sqrt(max(left, 1e-8))
        (shared,) = self._process.covariance(self._candidates[[candidate]], self._candidates)
        gained = (shared - line @ known) / own
        self._root[count, :count], self._root[count, count] = line, own
        self._whitened[count] = gained
        self._variances -= gained * gained
        self._count += 1

    def predict(self, targets: Floats) -> Floats:
        """The means of the candidates for each of some vectors of targets, with one target per row.

        Only what follows the first target that has changed is computed again.
        """
        count = self._count
        if self._targets is None:
            self._targets = np.full((len(targets), len(self._root)), np.nan)
            self._weights = np.zeros_like(self._targets)
            self._means = np.zeros((len(targets), len(self._candidates)))
        known = self._targets[:, :count]
        is_new = ((targets != known) & ~(np.isnan(targets) & np.isnan(known))).any(axis=0)
        first = int(is_new.argmax()) if is_new.any() else count
        before = self._weights[:, first:count].copy()
        is_believed = np.isnan(targets)
        for row in range(first, count):
            left = targets[:, row] - self._weights[:, :row] @ self._root[row, :row]
            self._weights[:, row] = np.where(is_believed[:, row], 0.0, left / self._root[row, row])
        known[:] = targets
        self._means += (self._weights[:, first:count] - before) @ self._whitened[first:count]
        return self._means.copy()
