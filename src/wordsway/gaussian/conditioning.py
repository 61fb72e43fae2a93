"""Products of a lazy Gaussian matrix: split the inputs into known and new directions, draw what is new, remember it."""

import torch
from torch import Tensor

from wordsway import memory
from wordsway.gaussian.base import draw_normal, empty, source_of

_PANEL = 64  # inputs treated at once: wide enough for fast products, narrow enough for a cheap factorisation
_PANEL_BYTES = 1 << 28  # bound on the working copy of a panel
_CHECKED_BYTES = 1 << 26  # blocks larger than this are checked against the free memory
_CHUNK_BYTES = 1 << 28  # bound on the growth of one chunk
_FIRST = 8  # rows of the first chunk
# Pivots of a Cholesky factor, relative to the largest, below which inputs are treated one panel after another: errors
# of the basis that is made later grow by their inverse, to 1e-5 in float32.
_PIVOT = {torch.float64: 1e-4, torch.float32: 1e-2}


class Rows:
    """A matrix (count x length) to which rows are appended and never moved, up to `limit` of them.

    A chunk is allocated ahead and filled in place, so that an append copies only the new rows; chunks grow with the
    number of rows up to a bound in bytes, so that products run over few large pieces and little is allocated in vain
    (pages of a chunk that were never written take no memory on the usual systems).
    """

    def __init__(self, length: int, limit: int, dtype: torch.dtype) -> None:
        self.length, self.limit, self.dtype = length, limit, dtype
        self.count = 0
        self._pieces: list[Tensor] = []  # the rows, as views of the filled part of each chunk
        self._chunk = empty(0, length, dtype)  # the last one
        self._used = 0  # its rows that are filled

    def products(self, vectors: Tensor) -> Tensor:
        """Return the inner products of the rows of `vectors` with all rows, (w, count)."""
        parts = [vectors @ piece.mT for piece in self._pieces]
        return torch.cat(parts, dim=1) if parts else vectors.new_zeros(len(vectors), 0)

    def add(self, weights: Tensor, out: Tensor, alpha: float = 1.0) -> None:
        """Add alpha times the combinations of rows with these weights (w, count) to `out`."""
        self._combine(weights, slice(None), out, alpha, 1.0)

    def combine(self, weights: Tensor, keep: slice, out: Tensor) -> None:
        """Write the part `keep` of the combinations of rows with these weights to `out`."""
        if not self._pieces:
            out.zero_()
        self._combine(weights, keep, out, 1.0, 0.0)

    def _combine(self, weights: Tensor, keep: slice, out: Tensor, alpha: float, beta: float) -> None:
        start = 0
        for piece in self._pieces:
            stop = start + len(piece)
            # the first product overwrites if beta is 0, the others add
            out.addmm_(weights[:, start:stop], piece[:, keep], alpha=alpha, beta=1.0 if start else beta)
            start = stop

    def reserve(self, count: int) -> Tensor:
        """Return memory for `count` more rows; `commit` appends them."""
        if len(self._chunk) - self._used < count:
            affordable = _CHUNK_BYTES // (self.length * self.dtype.itemsize)
            growth = min(max(_FIRST, self.count), affordable, self.limit - self.count)
            self._chunk, self._used = empty(max(count, growth), self.length, self.dtype), 0
        return self._chunk[self._used : self._used + count]

    def commit(self, count: int) -> None:
        """Append the first `count` of the rows last reserved."""
        if self._used:
            self._pieces.pop()
        self._used += count
        self.count += count
        self._pieces.append(self._chunk[: self._used])


class Basis:
    """An orthonormal basis of the inputs of one side, with its outputs."""

    def __init__(self, length: int, output_length: int, dtype: torch.dtype) -> None:
        self.length = length
        self.vectors, self.outputs = Rows(length, length, dtype), Rows(output_length, length, dtype)

    @property
    def count(self) -> int:
        return self.vectors.count

    @property
    def full(self) -> bool:
        """Whether the basis spans the whole space, so that the matrix is known."""
        return self.count == self.length


class Conditioning:
    """The state that all views of one lazy matrix share: a basis for each side, and a generator."""

    def __init__(self, rows: int, cols: int, scale: float, seed: int, dtype: torch.dtype) -> None:
        self.scale, self.dtype = scale, dtype
        self.bases = (Basis(cols, rows, dtype), Basis(rows, cols, dtype))  # of G and of G^T
        self._eps = torch.finfo(dtype).eps
        self._source = source_of(seed)
        self._joint: tuple[slice, Tensor, Tensor, Tensor] | None = None  # drawn together, and not yet in the basis

    def multiply(self, side: int, inputs: Tensor, given: slice, wanted: slice) -> Tensor:
        """Return G q (side 0) or G^T p (side 1) for the rows of `inputs`.

        Parameters
        ----------
        side
            0 or 1.
        inputs
            b x (length of `given`), finite; a full input is zero outside `given`.
        given, wanted
            The part of a full input that is given, and the part of a full output that is returned.

        Returns
        -------
        Tensor
            b x (length of `wanted`).
        """
        self.settle()
        basis, other = self.bases[side], self.bases[1 - side]
        total, width = len(inputs), wanted.stop - wanted.start
        if total * (basis.length + other.length) * self.dtype.itemsize > _CHECKED_BYTES:
            self.require(side, total, width, f"a block of {total} inputs of a lazy matrix")
        outputs = empty(total, width, self.dtype)
        start = 0
        while start < total:
            stop = min(total, start + self._panel_width(side))
            self._multiply_panel(basis, other, inputs[start:stop], given, wanted, outputs[start:stop])
            start = stop
        return outputs

    def draw_together(self, columns: slice, inputs: Tensor) -> tuple[Tensor, Tensor] | None:
        """Draw a block of columns of G, (width x rows), and the outputs of b inputs (b x cols), before all else.

        Given the columns, outputs are Gaussian vectors with the Gram matrix of the other entries of the inputs: one
        Cholesky factor times fresh numbers. None, and nothing is drawn, where something is known or that matrix is
        nearly singular.
        """
        right, left = self.bases
        if self._joint is not None or right.count or left.count:
            return None
        width, total = columns.stop - columns.start, len(inputs)
        numbers = (width + 2 * total) * left.length + 2 * total * right.length
        memory.require(numbers * self.dtype.itemsize, f"a block of {total} inputs of a lazy matrix")
        rest = inputs.clone()
        rest[:, columns] = 0
        wide = rest.double()
        factor, failed = torch.linalg.cholesky_ex(wide @ wide.mT)
        pivots = factor.diagonal()
        if bool(failed) or not float(pivots.min()) >= _PIVOT[self.dtype] * float(pivots.max()):
            return None
        known, fresh = (empty(count, left.length, self.dtype) for count in (width, total))
        for output in (*known, *fresh):
            draw_normal(output, self.scale, self._source)
        self._joint = columns, rest, known, fresh
        return known, torch.addmm(inputs[:, columns] @ known, factor.to(self.dtype), fresh)

    def settle(self) -> None:
        """Put what was drawn together into the basis, now that another product is needed."""
        if self._joint is None:
            return
        columns, rest, known, fresh = self._joint
        self._joint = None
        basis, _ = self.bases
        basis.vectors.reserve(len(known)).zero_()[:, columns].fill_diagonal_(1.0)
        basis.outputs.reserve(len(known)).copy_(known)
        directions, triangle = torch.linalg.qr(rest.mT)  # the Cholesky factor is the triangle with positive pivots
        for rows in (basis.vectors, basis.outputs):
            rows.commit(len(known))
        basis.vectors.reserve(len(rest)).copy_((directions * triangle.diagonal().sign()).mT)
        basis.outputs.reserve(len(rest)).copy_(fresh)
        for rows in (basis.vectors, basis.outputs):
            rows.commit(len(rest))

    def impose(self, vector: Tensor, output: Tensor) -> None:
        """Set G q to `output` for one vector q != 0, before any product is known."""
        basis, size = self.bases[0], torch.linalg.vector_norm(vector)
        basis.vectors.reserve(1).copy_(vector / size)
        basis.outputs.reserve(1).copy_(output / size)
        basis.vectors.commit(1)
        basis.outputs.commit(1)

    def require(self, side: int, count: int, width: int, what: str) -> None:
        """Raise, before anything is allocated, if the memory for `count` inputs and their outputs is not there."""
        basis, other = self.bases[side], self.bases[1 - side]
        new = 0 if other.full else min(count, basis.length - basis.count)
        panel = min(count, self._panel_width(side))
        numbers = new * (basis.length + other.length) + count * width + 3 * panel * basis.length
        memory.require(numbers * self.dtype.itemsize, what, "multiply fewer inputs at a time or use a smaller size")

    def _panel_width(self, side: int) -> int:
        """Return how many inputs to treat at once: no more than there are unknown directions, while any is unknown."""
        basis, other = self.bases[side], self.bases[1 - side]
        affordable = max(1, _PANEL_BYTES // (basis.length * self.dtype.itemsize))
        unknown = basis.length if basis.full or other.full else basis.length - basis.count
        return min(_PANEL, affordable, unknown)

    def _multiply_panel(
        self, basis: Basis, other: Basis, inputs: Tensor, given: slice, wanted: slice, out: Tensor
    ) -> None:
        """Write the outputs of one panel of inputs to `out`."""
        single = len(inputs) == 1 and not (basis.full or other.full)
        # A single new input is worked on where it will be kept.
        panel = basis.vectors.reserve(1) if single else empty(len(inputs), basis.length, self.dtype)  # w length
        peaks = _fill(panel, inputs, given)  # w 1
        if other.full:  # the matrix is known from the other side: G q = Q_L (Y_L^T q)
            other.vectors.combine(other.outputs.products(panel) * peaks, wanted, out)
            return
        weights = basis.vectors.products(panel)  # w count
        if not basis.full:
            weights = torch.cat([weights, self._extend(basis, other, panel, weights)], dim=1)  # count has grown
        basis.outputs.combine(weights * peaks, wanted, out)

    def _extend(self, basis: Basis, other: Basis, panel: Tensor, weights: Tensor) -> Tensor:
        """Add what is new in a panel to the basis and return its weights on that; the panel is overwritten.

        An input counts as known if no more than a few rounding errors of it remain: its output then misses that
        fraction, as any output does by rounding. The threshold must not be higher, because what is dropped is missing
        in the adjoint identity (a root of eps would cost half the digits); where it is too low, a rounding error is
        treated as a direction of its own, which costs a draw but no accuracy.
        """
        floor = 16 * self._eps * (16 + basis.count) ** 0.5  # errors of a projection grow like the root of its terms
        floors = [floor * size for size in torch.linalg.vector_norm(panel, dim=1).tolist()]
        basis.vectors.add(weights, panel, alpha=-1.0)
        new_weights = [panel[:, :0]]
        while not basis.full:
            sizes = torch.linalg.vector_norm(panel, dim=1).tolist()
            rows = [row for row, size in enumerate(sizes) if size > floors[row]]
            directions, on_them = _new_directions(basis.vectors, panel, rows, floors)  # k length, w k
            if not len(directions):
                break
            self._draw(basis, other, directions)
            new_weights.append(on_them)
            if len(panel) == 1:
                break
            # Inputs that were set aside as dependent may depend on others that were set aside: look at them again.
            panel.addmm_(on_them, directions, alpha=-1.0)
        return torch.cat(new_weights, dim=1)

    def _draw(self, basis: Basis, other: Basis, directions: Tensor) -> None:
        """Draw the outputs of orthonormal directions that are orthogonal to the basis, and append both to it."""
        count = len(directions)
        basis.vectors.reserve(count).copy_(directions)
        outputs = basis.outputs.reserve(count)
        for output in outputs:  # one at a time, so that a block draws what its columns would draw one after another
            draw_normal(output, self.scale, self._source)
        # Q (Y^T u) + (I - Q Q^T) z with two passes over Q
        other.vectors.add(other.outputs.products(directions) - other.vectors.products(outputs), outputs)
        basis.vectors.commit(count)
        basis.outputs.commit(count)


def _fill(panel: Tensor, inputs: Tensor, given: slice) -> Tensor:
    """Write inputs, padded with zeros and scaled to a largest entry of 1, into a panel; return the scales.

    The scaling keeps squares from overflowing or vanishing.
    """
    panel[:, : given.start] = 0
    panel[:, given.stop :] = 0
    peaks = torch.maximum(inputs.amax(1, keepdim=True), -inputs.amin(1, keepdim=True))  # w 1
    torch.div(inputs, torch.where(peaks == 0, 1, peaks), out=panel[:, given])
    return peaks


def _orthonormal(vectors: Tensor) -> tuple[Tensor, list[float]]:
    """Orthonormalise rows in order; also return how much of each was new. A single row is overwritten."""
    if len(vectors) == 1:
        size = float(torch.linalg.vector_norm(vectors))
        return vectors.div_(size or 1.0), [size]
    basis, weights = torch.linalg.qr(vectors.mT)  # length w, w w
    sizes = weights.diagonal()
    basis *= torch.where(sizes < 0, -1, 1)  # as if one row after another, so that a block equals its columns
    return basis.mT, sizes.abs().tolist()  # LAPACK's columns are contiguous, and so are these rows


def _new_directions(known: Rows, panel: Tensor, rows: list[int], floors: list[float]) -> tuple[Tensor, Tensor]:
    """Return orthonormal directions for these rows of a panel that was projected once, and the panel's weights on them.

    They are projected twice, because division by a small remainder magnifies what the first projection missed. Rows of
    which less than their floor is new to the earlier rows are set aside.
    """
    while rows:
        basis, first = _orthonormal(panel if len(rows) == len(panel) else panel[rows])
        known.add(known.products(basis), basis, alpha=-1.0)
        basis, second = _orthonormal(basis)
        sizes = [a * b for a, b in zip(first, second, strict=True)]
        new = [row for row, size in zip(rows, sizes, strict=True) if size > floors[row]]
        if len(new) == len(rows):
            return basis, panel.new_tensor([sizes]) if len(panel) == 1 else panel @ basis.mT
        rows = new
    return panel[:0], panel[:, :0]
