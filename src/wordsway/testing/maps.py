"""What every feature map and its one-word response must satisfy, as tests to inherit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wordsway.contexts import perturb
from wordsway.maps import FeatureMap, PlainResponse, Response, respond
from wordsway.maps.response import Functional
from wordsway.seeds import generator, normal
from wordsway.sensitivity import response_sensitivity

_COUNT = 6  # perturbations in a batch
_STEP = 1e-5  # of central differences, relative to the radius


@dataclass(frozen=True)
class _Case:
    """A map at a context along words, with the plain response of its twin and a batch of perturbations."""

    phi: FeatureMap
    twin: FeatureMap
    X: Tensor
    word: int | tuple[int, ...]
    together: bool
    response: Response
    plain: PlainResponse
    deltas: Tensor  # b *shape


class MapConformance:
    """Tests of a map: inherit, give `make` and `context`, and let pytest collect the class.

    ::

        class TestMine(MapConformance):
            def make(self, seed):
                return MyMap(seed)

            def context(self, seed):
                return wordsway.gaussian_context(5, 4, seed)

    Every response is compared with the map itself at perturbed contexts, differentiated by autograd; so the map must be
    made of torch operations. Choose small contexts of at least two words, away from points where the map has a kink.

    Attributes
    ----------
    seeds
        Seeds passed to `make` and `context`.
    radius
        Radius of the ball that perturbations are taken from; sqrt(d) for None.
    tolerance
        Allowed difference in float64, relative to the size of what is compared.
    gradient_tolerance
        Allowed difference of gradients from central differences, relative to the largest gradient.
    single_tolerance
        Allowed difference of float32 from float64, relative to the size of the features.
    follows_dtype
        Whether float32 contexts give float32 features; False for a map whose weights set the dtype.
    efforts
        Ceilings that are compared with what the search finds.
    """

    seeds: tuple[int, ...] = (0, 1)
    radius: float | None = None
    tolerance = 1e-10
    gradient_tolerance = 1e-6
    single_tolerance = 1e-3
    follows_dtype = True
    efforts: tuple[str, ...] = ("simple", "quick", "tight")

    def make(self, seed: int) -> FeatureMap:
        """Return the map; two calls with the same seed must give equal maps."""
        raise NotImplementedError

    def context(self, seed: int) -> Tensor:
        """Return a context of float64 that the map can read, at least two words."""
        raise NotImplementedError

    def twin(self, phi: FeatureMap) -> FeatureMap:
        """Return the same map written in the plainest way, for a map whose own call is to be tested too."""
        return phi

    def still_rows(self, word: int, n: int) -> Sequence[int]:
        """Return the rows of the features that must not change when `word` moves, such as those before it."""
        return ()

    def test_responds_in_the_shapes_of_the_protocol(self) -> None:
        for case in self._cases():
            response, (n, d), size = case.response, case.X.shape, _size(case.word)
            assert isinstance(response, Response)
            assert 0 < size <= n
            several = case.together or not isinstance(case.word, int)
            assert response.shape == ((size, d) if several else (d,))
            assert response.batch == (() if case.together or isinstance(case.word, int) else (size,))
            features = case.phi(case.X)
            for lead in ((), (2, 3)):
                delta = case.deltas[0].expand(*lead, *response.shape)
                value, grad = response.change(delta)
                assert value.shape == (*lead, *response.batch)
                assert grad is not None
                assert grad.shape == delta.shape
                value, grad = response.inner(torch.ones_like(features))(delta)
                assert value.shape == (*lead, *response.batch)
                assert grad is not None
                assert grad.shape == delta.shape
                assert response.features(delta).shape == (*lead, *response.batch, *features.shape)

    def test_features_are_those_of_the_perturbed_context(self) -> None:
        for case in self._cases():
            features = case.response.features(case.deltas)
            expected = _features(case)
            self._close(features, expected, _norm(case.twin(case.X)))

    def test_change_is_that_of_the_features_relative_to_their_norm(self) -> None:
        for case in self._cases():
            value, grad = case.response.change(case.deltas, gradient=False)
            assert grad is None
            base = case.twin(case.X)
            differences = _features(case) - base
            lead = 1 + len(case.response.batch)
            norms = differences.reshape(*differences.shape[:lead], -1).square().sum(-1).sqrt()
            self._close(value, norms / _norm(base), 1.0)
            again, _ = case.response.change(case.deltas)
            self._close(again, value, 1.0)

    def test_gradient_of_the_change(self) -> None:
        for case in self._cases():
            _, grad = case.response.change(case.deltas)
            _, plain = case.plain.change(case.deltas)
            self._gradients(grad, plain)
            self._differences(case, _changes(case.response), grad)

    def test_inner_products_and_their_gradient(self) -> None:
        for case in self._cases():
            base = case.twin(case.X)
            u = _normal(base.shape, 3)
            value, grad = case.response.inner(u)(case.deltas)
            features = _features(case)
            lead = 1 + len(case.response.batch)
            products = (features * u).reshape(*features.shape[:lead], -1).sum(-1)
            self._close(value, products, _norm(u) * _norm(base))
            _, plain = case.plain.inner(u)(case.deltas)
            self._gradients(grad, plain)
            self._differences(case, case.response.inner(u), grad)

    def test_zero_perturbation_gives_zero_change(self) -> None:
        for case in self._cases():
            zero = torch.zeros(2, *case.response.shape, dtype=case.X.dtype)
            value, grad = case.response.change(zero)
            assert float(value.abs().max()) <= self.tolerance * 1e-2
            assert grad is not None
            assert bool(torch.isfinite(grad).all())
            base = case.twin(case.X)
            self._close(case.response.features(zero), base.expand(2, *case.response.batch, *base.shape), _norm(base))

    def test_batched_equals_one_at_a_time(self) -> None:
        for case in self._cases():
            response, base = case.response, case.phi(case.X)
            grid = case.deltas.reshape(2, 3, *response.shape)
            functional = response.inner(_normal(base.shape, 4))
            features = response.features(grid)
            for answer in (response.change, functional):
                values, gradients = answer(grid)
                for at in ((0, 2), (1, 0)):
                    value, grad = answer(grid[at])
                    self._close(values[at], value, _norm(base))
                    self._gradients(None if gradients is None else gradients[at], grad)
            self._close(features[1, 0], response.features(grid[1, 0]), _norm(base))

    def test_words_on_their_own_equal_single_words(self) -> None:
        for phi, X in self._pairs():
            words = _words(len(X))
            several = respond(phi, X, words)
            delta = self._ball(X, (len(words), X.shape[1]))
            values, gradients = several.change(delta)
            features, base = several.features(delta), phi(X)
            u = _normal(base.shape, 5)
            products, _ = several.inner(u)(delta)
            for slot, word in enumerate(words):
                one, own = respond(phi, X, word), delta[:, slot]
                value, grad = one.change(own)
                self._close(values[:, slot], value, 1.0)
                self._gradients(None if gradients is None else gradients[:, slot], grad)
                self._close(features[:, slot], one.features(own), _norm(base))
                self._close(products[:, slot], one.inner(u)(own)[0], _norm(u) * _norm(base))

    def test_words_together_with_one_at_rest_equal_the_other_alone(self) -> None:
        for phi, X in self._pairs():
            first, last = 0, len(X) - 1
            both = respond(phi, X, (first, last), together=True)
            for slot, word in enumerate((first, last)):
                delta = self._ball(X, (X.shape[1],))
                value, grad = respond(phi, X, word).change(delta)
                lone, pull = respond(phi, X, (word,), together=True).change(delta.unsqueeze(1))
                self._close(lone, value, 1.0)
                self._gradients(None if pull is None else pull.squeeze(1), grad)
                joint = torch.zeros(len(delta), 2, X.shape[1], dtype=X.dtype)
                joint[:, slot] = delta
                self._close(both.change(joint)[0], value, 1.0)

    def test_ceiling_is_above_every_value(self) -> None:
        for case in self._cases():
            radius = self._radius(case.X)
            delta = _in_ball(case.response.shape, radius, 200, seed=7)
            value = case.response.change(delta, gradient=False)[0].amax(0)
            ceilings = {effort: case.response.ceiling(radius, effort) for effort in self.efforts}
            known = {effort: ceiling for effort, ceiling in ceilings.items() if ceiling is not None}
            if known and isinstance(case.word, int):
                sensitivity = response_sensitivity(case.response, case.word, radius, ceiling=None)
                value = value.clamp_min(sensitivity.value)
            for effort, ceiling in known.items():
                assert ceiling.value.shape == case.response.batch
                assert bool(torch.isfinite(ceiling.value).all())
                assert ceiling.kind
                assert 0 <= ceiling.failure <= 1e-6
                assert bool((value <= ceiling.value * (1 + 1e-9)).all()), f"{effort}: {value} above {ceiling.value}"

    def test_dtype_follows_the_context(self) -> None:
        for case in self._cases():
            if not self.follows_dtype:
                continue
            phi, X = case.phi, case.X
            assert case.response.hints.dtype == torch.float64
            response = respond(phi, X.float(), case.word, together=case.together)
            delta = case.deltas.float()
            value, grad = response.change(delta)
            product, pull = response.inner(torch.ones_like(phi(X.float())))(delta)
            answers = (value, grad, product, pull, response.features(delta), phi(X.float()))
            assert [x.dtype for x in answers if x is not None] == [torch.float32] * 6
            assert response.hints.dtype == torch.float32
            expected = case.response.change(delta.double())[0]
            gap = float((value.double() - expected).abs().max())
            assert gap <= self.single_tolerance, f"float32 differs by {gap:.3g}"

    def test_rows_that_cannot_hear_the_word_do_not_change(self) -> None:
        for phi, X in self._pairs():
            for word in range(len(X)):
                rows = list(self.still_rows(word, len(X)))
                if rows:
                    moved = respond(phi, X, word).features(self._ball(X, (X.shape[1],)))
                    base = phi(X)
                    self._close(moved[:, rows], base[rows].expand_as(moved[:, rows]), _norm(base))

    def test_same_context_same_answer(self) -> None:
        for case in self._cases():
            before = case.X.clone()
            state = torch.get_rng_state()
            first = case.response.change(case.deltas)[0]
            case.response.features(case.deltas.flip(0))
            self._close(case.response.change(case.deltas)[0], first, 1.0)
            again = respond(case.phi, case.X, case.word, together=case.together)
            self._close(again.change(case.deltas)[0], first, 1.0)
            assert torch.equal(case.X, before)
            assert torch.equal(torch.get_rng_state(), state)

    def test_same_seed_same_bytes(self) -> None:
        for seed in self.seeds:
            X = self.context(seed)
            assert torch.equal(X, self.context(seed))
            one, two = (self.make(seed) for _ in range(2))
            assert torch.equal(one(X), two(X))
            delta = self._ball(X, (X.shape[1],))
            first, second = (respond(phi, X, 0).change(delta) for phi in (one, two))
            assert torch.equal(first[0], second[0])
            assert first[1] is not None
            assert second[1] is not None
            assert torch.equal(first[1], second[1])

    def _pairs(self) -> Iterator[tuple[FeatureMap, Tensor]]:
        for seed in self.seeds:
            yield self.make(seed), self.context(seed)

    def _cases(self) -> Iterator[_Case]:
        """Every seed along a word in the middle, and along three words: each on its own, and together."""
        for phi, X in self._pairs():
            assert X.dtype == torch.float64, "conformance is checked in float64"
            words = _words(len(X))
            cases: list[tuple[int | tuple[int, ...], bool]] = [(words[len(words) // 2], False)]
            cases += [(words, False), (words[::-1], True)]
            for number, (word, together) in enumerate(cases):
                response = respond(phi, X, word, together=together)
                twin = self.twin(phi)
                plain = PlainResponse(twin, X, word, together)
                deltas = _in_ball(plain.shape, self._radius(X), _COUNT, seed=number)
                yield _Case(phi, twin, X, word, together, response, plain, deltas)

    def _radius(self, X: Tensor) -> float:
        return math.sqrt(X.shape[1]) if self.radius is None else self.radius

    def _ball(self, X: Tensor, shape: tuple[int, ...]) -> Tensor:
        return _in_ball(shape, self._radius(X), _COUNT, seed=17)

    def _close(self, one: Tensor, two: Tensor, size: float) -> None:
        """Fail unless two tensors agree to the tolerance at the given size."""
        assert one.shape == two.shape, f"shapes {tuple(one.shape)} and {tuple(two.shape)}"
        gap = float((one - two).detach().abs().max())
        assert gap <= self.tolerance * max(size, 1.0), (
            f"differ by {gap:.3g}, allowed {self.tolerance:.3g} of {size:.3g}"
        )

    def _gradients(self, one: Tensor | None, two: Tensor | None) -> None:
        assert one is not None
        assert two is not None
        self._close(one, two, float(two.abs().max()))

    def _differences(self, case: _Case, function: Functional, grad: Tensor | None) -> None:
        """Compare gradients with central differences along a random direction of each moving word."""
        assert grad is not None
        direction = _normal(case.response.shape, 11)
        step = _STEP * self._radius(case.X) / _norm(direction)
        ends = [function(case.deltas + sign * step * direction)[0] for sign in (1, -1)]
        measured = (ends[0] - ends[1]) / (2 * step)
        along = (grad * direction).sum(-1)
        if case.together:
            along = along.sum(-1)
        gap = float((measured - along).abs().max())
        allowed = self.gradient_tolerance * (_norm(direction) * float(grad.abs().max()) + 1.0)
        assert gap <= allowed, f"gradient differs from central differences by {gap:.3g}, allowed {allowed:.3g}"


def _changes(response: Response) -> Functional:
    return lambda delta: response.change(delta, gradient=False)


def _features(case: _Case) -> Tensor:
    """Features of the twin at every perturbation of the case: the definition."""
    if case.together or isinstance(case.word, int):
        contexts = perturb(case.X, case.word, case.deltas)  # b n d
    else:
        moved = [perturb(case.X, word, case.deltas[:, slot]) for slot, word in enumerate(case.word)]
        contexts = torch.stack(moved, dim=1)  # b W n d
    if getattr(case.twin, "batched", False):
        return case.twin(contexts).detach()
    flat = torch.stack([case.twin(context) for context in contexts.flatten(0, -3)]).detach()
    return flat.reshape(*contexts.shape[:-2], *flat.shape[1:])


def _words(n: int) -> tuple[int, ...]:
    assert n >= 2, "a context for conformance needs at least two words"
    return tuple(sorted({0, n // 2, n - 1}))


def _size(word: int | tuple[int, ...]) -> int:
    return 1 if isinstance(word, int) else len(word)


def _in_ball(shape: tuple[int, ...], radius: float, count: int, seed: int) -> Tensor:
    """Perturbations of every word: in the first half of the batch inside the ball, in the second half on the sphere."""
    delta = _normal((count, *shape), 100 + seed)
    delta = delta / delta.square().sum(-1, keepdim=True).sqrt() * radius
    inside = torch.linspace(0.2, 1.8, count, dtype=delta.dtype).clamp_max(1.0)
    return delta * inside.reshape(-1, *[1] * len(shape))


def _normal(shape: Sequence[int], seed: int) -> Tensor:
    return normal(generator(seed, "conformance"), shape)


def _norm(x: Tensor) -> float:
    return float(x.detach().square().sum().sqrt())
