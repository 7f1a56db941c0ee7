"""Fit the numbers that turn scores into probabilities."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_PROBABILITY = 1e-7
"""Lower scores count as this. Answers have seven decimals, so that it is their smallest number above 0."""

_INVERSE_TEMPERATURES = (0.05, 20.0)
_BISECTIONS = 60
_NEWTON_STEPS = 100
_TOLERANCE = 1e-10


def log_odds(scores: Floats) -> Floats:
    """Return the logarithm of the odds of scores 0..1, limited as `MIN_PROBABILITY`."""
    limited = np.clip(scores, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.log(limited) - np.log1p(-limited)


def sigmoid(values: Floats) -> Floats:
    """Return the probability of log odds."""
    return 0.5 * (1 + np.tanh(values / 2))


def softmax(logits: Floats) -> Floats:
    """Return probabilities over the last axis. A logit of -inf has none."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def fit_temperature(logits: Floats, truth: NDArray[np.intp]) -> float:
    """Return the temperature that minimises the cross entropy with the true classes, 0.05..20.

    It is convex in the inverse temperature (Guo et al., 2017), so that its slope has one zero. As in `fit_platt`, a
    share of 1 / (N + 2) of each target belongs to the other classes: answers without a mistake do not become certain.

    Args:
        logits: (N, K) logarithms of the scores; -inf where an image has fewer than K classes.
        truth: (N,) the index of the true class.
    """
    known = np.isfinite(logits)
    finite, share = np.where(known, logits, 0.0), 1 / (len(truth) + 2)
    true = logits[np.arange(len(truth)), truth]
    others = (finite.sum(axis=1) - true) / np.maximum(known.sum(axis=1) - 1, 1)
    wanted = float(((1 - share) * true + share * others).mean())
    low, high = _INVERSE_TEMPERATURES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        expected = float((softmax(middle * logits) * finite).sum(axis=1).mean())
        low, high = (middle, high) if expected < wanted else (low, middle)
    return 2 / (low + high)


def fit_platt(values: Floats, outcomes: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and intercept of the logistic regression of outcomes on (N,) log odds.

    The targets are Platt's (1999), not 0 and 1: the fit stays finite if the outcomes can be separated.
    """
    positives = int(outcomes.sum())
    negatives = len(outcomes) - positives
    targets = np.where(outcomes, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    inputs = np.stack([values, np.ones_like(values)])
    weights = np.array([0.0, np.log((positives + 1) / (negatives + 1))])
    loss = _logistic_loss(weights @ inputs, targets)
    for _ in range(_NEWTON_STEPS):
        probabilities = sigmoid(weights @ inputs)
        gradient = inputs @ (probabilities - targets)
        curvature = (inputs * probabilities * (1 - probabilities)) @ inputs.T + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        # Far from the optimum, a whole step of Newton may overshoot.
        size = 1.0
        while (next_loss := _logistic_loss((weights - size * step) @ inputs, targets)) > loss and size > _TOLERANCE:
            size /= 2
        weights, improvement, loss = weights - size * step, loss - next_loss, next_loss
        if improvement < _TOLERANCE:
            break
    return float(weights[0]), float(weights[1])


def _logistic_loss(values: Floats, targets: Floats) -> float:
    return float((np.logaddexp(0, values) - targets * values).sum())
