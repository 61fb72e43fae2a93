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

    @property
    def base(self) -> Tensor:
        return self.twin(self.X).detach()

    def features(self) -> Tensor:
        """Features of the twin at every perturbation, by the definition: (b, *batch, *feature shape)."""
        if self.together or isinstance(self.word, int):
            contexts = perturb(self.X, self.word, self.deltas)  # b n d
        else:
            moved = [perturb(self.X, word, self.deltas[:, slot]) for slot, word in enumerate(self.word)]
            contexts = torch.stack(moved, dim=1)  # b W n d
        features = torch.stack([self.twin(context) for context in contexts.flatten(0, -3)]).detach()
        return features.reshape(*contexts.shape[:-2], *features.shape[1:])

    def by_perturbation(self, features: Tensor) -> Tensor:
        """(b, *batch, *feature shape) -> (b, *batch, p)."""
        return features.flatten(1 + len(self.response.batch)) if self.base.ndim else features[..., None]


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
            response, d = case.response, case.X.shape[1]
            assert isinstance(response, Response)
            if isinstance(case.word, int):
                assert (response.shape, response.batch) == ((d,), ())
            else:
                size = len(case.word)
                assert (response.shape, response.batch) == ((size, d), () if case.together else (size,))
            features = case.phi(case.X)
            for lead in ((), (2, 3)):
                delta = case.deltas[0].expand(*lead, *response.shape)
                for function in (response.change, response.inner(torch.ones_like(features))):
                    value, gradient = _evaluate(function, delta)
                    assert value.shape == (*lead, *response.batch)
                    assert gradient.shape == delta.shape
                assert response.features(delta).shape == (*lead, *response.batch, *features.shape)

    def test_features_are_those_of_the_perturbed_context(self) -> None:
        for case in self._cases():
            self._close(case.response.features(case.deltas), case.features(), _norm(case.base))

    def test_change_is_that_of_the_features_relative_to_their_norm(self) -> None:
        for case in self._cases():
            differences = case.by_perturbation(case.features() - case.base)
            expected = differences.square().sum(-1).sqrt() / _norm(case.base)
            self._compare(case, case.response.change, case.plain.change, expected, 1.0)
            value, gradient = case.response.change(case.deltas, gradient=False)
            assert gradient is None
            self._close(value, expected, 1.0)

    def test_inner_products_and_their_gradient(self) -> None:
        for case in self._cases():
            u = _normal(case.base.shape, 3)
            products = case.by_perturbation(case.features() * u).sum(-1)
            self._compare(case, case.response.inner(u), case.plain.inner(u), products, _norm(u) * _norm(case.base))

    def test_zero_perturbation_gives_zero_change(self) -> None:
        for case in self._cases():
            zero = torch.zeros(2, *case.response.shape, dtype=case.X.dtype)
            value, gradient = _evaluate(case.response.change, zero)
            assert float(value.abs().max()) <= self.tolerance * 1e-2
            assert bool(torch.isfinite(gradient).all())
            unmoved = case.base.expand(2, *case.response.batch, *case.base.shape)
            self._close(case.response.features(zero), unmoved, _norm(case.base))

    def test_batched_equals_one_at_a_time(self) -> None:
        for case in self._cases():
            response, base = case.response, case.phi(case.X)
            grid = case.deltas.reshape(2, 3, *response.shape)
            for function in (response.change, response.inner(_normal(base.shape, 4))):
                values, gradients = _evaluate(function, grid)
                for at in ((0, 2), (1, 0)):
                    value, gradient = _evaluate(function, grid[at])
                    self._close(values[at], value, _norm(base))
                    self._close(gradients[at], gradient)
            self._close(response.features(grid)[1, 0], response.features(grid[1, 0]), _norm(base))

    def test_words_on_their_own_equal_single_words(self) -> None:
        for phi, X in self._pairs():
            words = _words(len(X))
            several = respond(phi, X, words)
            delta = self._ball(X, (len(words), X.shape[1]))
            values, gradients = _evaluate(several.change, delta)
            features, base = several.features(delta), phi(X)
            u = _normal(base.shape, 5)
            products, _ = several.inner(u)(delta)
            for slot, word in enumerate(words):
                one, own = respond(phi, X, word), delta[:, slot]
                value, gradient = _evaluate(one.change, own)
                self._close(values[:, slot], value, 1.0)
                self._close(gradients[:, slot], gradient)
                self._close(features[:, slot], one.features(own), _norm(base))
                self._close(products[:, slot], one.inner(u)(own)[0], _norm(u) * _norm(base))

    def test_words_together_with_one_at_rest_equal_the_other_alone(self) -> None:
        for phi, X in self._pairs():
            first, last = 0, len(X) - 1
            both = respond(phi, X, (first, last), together=True)
            for slot, word in enumerate((first, last)):
                delta = self._ball(X, (X.shape[1],))
                value, gradient = _evaluate(respond(phi, X, word).change, delta)
                alone = respond(phi, X, (word,), together=True)
                its_value, its_gradient = _evaluate(alone.change, delta.unsqueeze(1))
                self._close(its_value, value, 1.0)
                self._close(its_gradient.squeeze(1), gradient)
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
        for case in self._cases() if self.follows_dtype else ():
            assert case.response.hints.dtype == torch.float64
            response = respond(case.phi, case.X.float(), case.word, together=case.together)
            features, delta = case.phi(case.X.float()), case.deltas.float()
            value, gradient = _evaluate(response.change, delta)
            products = _evaluate(response.inner(torch.ones_like(features)), delta)
            for result in (features, value, gradient, *products, response.features(delta)):
                assert result.dtype == response.hints.dtype == torch.float32
            gap = float((value.double() - case.response.change(delta.double())[0]).abs().max())
            assert gap <= self.single_tolerance, f"float32 differs by {gap:.3g}"

    def test_rows_that_do_not_depend_on_the_word_do_not_change(self) -> None:
        for phi, X in self._pairs():
            for word in range(len(X)):
                rows = list(self.still_rows(word, len(X)))
                if rows:
                    moved, base = respond(phi, X, word).features(self._ball(X, (X.shape[1],))), phi(X)
                    self._close(moved[:, rows], base[rows].expand_as(moved[:, rows]), _norm(base))

    def test_same_context_same_values(self) -> None:
        for case in self._cases():
            before, state = case.X.clone(), torch.get_rng_state()
            first = case.response.change(case.deltas)[0]
            case.response.features(case.deltas.flip(0))
            again = respond(case.phi, case.X, case.word, together=case.together)
            for response in (case.response, again):
                self._close(response.change(case.deltas)[0], first, 1.0)
            assert torch.equal(case.X, before)
            assert torch.equal(torch.get_rng_state(), state)

    def test_same_seed_same_bytes(self) -> None:
        for seed in self.seeds:
            X = self.context(seed)
            assert torch.equal(X, self.context(seed))
            one, two = (self.make(seed) for _ in range(2))
            assert torch.equal(one(X), two(X))
            delta = self._ball(X, (X.shape[1],))
            results = (_evaluate(respond(phi, X, 0).change, delta) for phi in (one, two))
            for first, second in zip(*results, strict=True):
                assert torch.equal(first, second)

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

    def _close(self, one: Tensor, two: Tensor, size: float | None = None) -> None:
        """Fail unless two tensors agree to the tolerance, relative to a size: by default the largest entry."""
        assert one.shape == two.shape, f"shapes {tuple(one.shape)} and {tuple(two.shape)}"
        scale = max(float(two.abs().max()) if size is None else size, 1.0)
        gap = float((one - two).detach().abs().max())
        assert gap <= self.tolerance * scale, f"differ by {gap:.3g}, allowed {self.tolerance:.3g} of {scale:.3g}"

    def _compare(self, case: _Case, function: Functional, plain: Functional, expected: Tensor, size: float) -> None:
        """Compare values with what is expected, and gradients with autograd and with central differences."""
        value, gradient = _evaluate(function, case.deltas)
        self._close(value, expected, size)
        self._close(gradient, _evaluate(plain, case.deltas)[1])
        direction = _normal(case.response.shape, 11)  # of each moving word
        step = _STEP * self._radius(case.X) / _norm(direction)
        ends = [function(case.deltas + sign * step * direction)[0] for sign in (1, -1)]
        along = (gradient * direction).flatten(1 + len(case.response.batch)).sum(-1)
        gap = float(((ends[0] - ends[1]) / (2 * step) - along).abs().max())
        allowed = self.gradient_tolerance * (_norm(direction) * float(gradient.abs().max()) + 1.0)
        assert gap <= allowed, f"gradient differs from central differences by {gap:.3g}, allowed {allowed:.3g}"


def _evaluate(function: Functional, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and gradients, which must be there."""
    value, gradient = function(delta)
    assert gradient is not None
    return value, gradient


def _words(n: int) -> tuple[int, ...]:
    assert n >= 2, "a context for conformance needs at least two words"
    return tuple(sorted({0, n // 2, n - 1}))


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
