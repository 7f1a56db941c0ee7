"""Kinds of images, and what is strange within them."""

import numpy as np

from app.drift.kinds import kinds, within_kinds
from app.drift.permutation import tails


def test_places_far_apart_are_kinds_of_their_own() -> None:
    rng = np.random.default_rng(0)
    place = np.repeat([0, 1], 60)
    found = kinds(rng.normal(size=(120, 3)) + 50 * place[:, None])
    assert len(set(found[place == 0])) == 1
    assert len(set(found[place == 1])) == 1
    assert found[0] != found[-1]


def test_few_images_or_no_embeddings_are_one_kind() -> None:
    assert not kinds(np.random.default_rng(0).normal(size=(99, 3))).any()
    assert not kinds(np.zeros((400, 0))).any()
    assert not kinds(np.zeros((400, 3))).any()


def test_numbers_within_kinds_have_mean_0_and_deviation_1_in_each() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 300)
    found = within_kinds(rng.normal(size=(300, 2)) * (1 + kind[:, None]) + 10 * kind[:, None], kind)
    for each in range(3):
        np.testing.assert_allclose(found[kind == each].mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(found[kind == each].std(axis=0), 1)
    assert not within_kinds(np.ones((10, 2)), np.zeros(10, np.intp)).any()


def test_what_is_usual_elsewhere_is_strange_within_its_kind() -> None:
    """One place in the dark, one in the light; a tenth of the new images of the light one are half as bright."""
    rng = np.random.default_rng(0)
    kind = np.arange(600) % 2
    light = rng.normal(size=600) + 8 * kind
    light[300:360] -= 4 * kind[300:360]
    assert tails(light[:, None], 300, rng)[1] > 0.05
    assert tails(within_kinds(light[:, None], kind), 300, rng)[1] < 0.005
