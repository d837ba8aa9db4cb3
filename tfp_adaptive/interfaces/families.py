"""The contracts of single families, by folder, and the cost of a step.

  latent      GaussianPrior, with its Covariance and its Smoother
  surrogate   Surrogate
  transport   Transport

Parts are NamedTuples of pure functions, as in `shared.py`.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple


class GaussianPrior(NamedTuple):
  """A prior N(mean, C) of a latent field x, and functions of its covariance C.

  Samplers work in the prior's coordinates s, rows [chains..., d], in which
  functions of C are cheap. If C = U diag(gamma) U^T with orthogonal U, then
  s = U^T (x - mean). If the precision is banded, s = x - mean. If the prior
  depends on hyperparameters, `params` may have leading chain dimensions, and
  every function below broadcasts over them.
  """

  name: str
  # Shape of the state without chain dimensions, ints; d is its product.
  event_shape: tuple[int, ...]
  # Mean and decomposition, a structure of Tensors of one floating dtype.
  params: Any
  # (params, x) -> coordinates s of x, rows [chains..., d].
  to_coordinates: Callable[[Any, Any], Any]
  # (params, s) -> x, the inverse of to_coordinates.
  from_coordinates: Callable[[Any, Any], Any]
  # (params, g) -> the gradient in s, from the gradient g in x. This is the
  # adjoint of from_coordinates without the mean: (x - mean) . g = s . pull(g).
  pull: Callable[[Any, Any], Any]
  # (params) -> Covariance in these coordinates.
  covariance: Callable[[Any], 'Covariance']
  # (params, variance) -> Smoother in these coordinates, variance [] positive.
  smoother: Callable[[Any, Any], 'Smoother']
  # (state [chains..., event_shape...]) -> the argument of the likelihood; None
  # for the whole state.
  restrict: Callable[[Any], Any] | None = None
  # Whether C has no inverse, to working precision.
  is_singular: bool = False
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Covariance(NamedTuple):
  """Functions of the prior covariance C, on rows in its coordinates."""

  # (v) -> C v.
  multiply: Callable[[Any], Any]
  # (e) -> rows of N(0, C) from rows e ~ N(0, I).
  draw: Callable[[Any], Any]
  # (v) -> C^-1 v, by the pseudo-inverse if C is singular.
  solve: Callable[[Any], Any]
  # (s) -> log N(s | 0, C), [chains...], in the range of C if C is singular.
  log_prob: Callable[[Any], Any]
  # (s) -> the same, but NaN where C is singular to working precision. Values of
  # different C can be compared. None if `log_prob` never drops a direction.
  log_prob_if_invertible: Callable[[Any], Any] | None = None


class Smoother(NamedTuple):
  """Functions of R = C (C + t I)^-1, on rows in the prior's coordinates.

  t is the `variance` that `GaussianPrior.smoother` takes. R z and t R are the
  mean and covariance of s ~ N(0, C), given an observation z ~ N(s, t I).
  """

  # (v) -> R v.
  gain: Callable[[Any], Any]
  # (v, e) -> R v + noise of covariance t R, from rows e ~ N(0, I).
  draw: Callable[[Any, Any], Any]
  # (v, e) -> R v + noise of covariance t R (I + R), distributed as `draw` at
  # v + N(0, t I).
  draw_marginal: Callable[[Any, Any], Any]
  # (v) -> (I + R)^-1 v.
  solve_marginal: Callable[[Any], Any]
  # (z) -> log N(z | 0, C + t I), [chains...].
  log_marginal: Callable[[Any], Any]


class Surrogate(NamedTuple):
  """A log density that is learned from draws alone, by score matching.

  `params` are a structure of Tensors without chain dimensions, with everything
  that is learned, including bandwidth, regularization and metric. Rows are
  [chains..., d], and draws [n, d]. Weights of draws, [n], are not negative and
  have sum one. Empty rows have weight zero.
  """

  name: str
  # n, the number of draws that a fit uses and a history keeps.
  num_points: int
  # (event_size, dtype, seed) -> params before a fit, whose score is zero.
  init: Callable[..., Any]
  # (params, points, weights, seed) -> params, fitted to the draws from scratch.
  # Cross-validation chooses bandwidth and regularization, around the values in
  # `params`. Params with a non-finite entry mean that the fit failed.
  fit: Callable[..., Any]
  # (params, x) -> log density up to a constant, [chains...].
  log_prob: Callable[[Any, Any], Any]
  # (params, x) -> the force on trajectories, [chains..., d]: the gradient of
  # `log_prob` in the region of the draws, and zero far away.
  score: Callable[[Any, Any], Any]
  # (params, x) -> bool [chains...]: whether x is in the region of the draws.
  is_inside: Callable[[Any, Any], Any]
  # (params, rows [b, d]) -> params with draws added, at a cost that does not
  # depend on the number of earlier draws; None if only `fit` learns. Rows that
  # are not finite are left out.
  update: Callable[[Any, Any], Any] | None = None
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Transport(NamedTuple):
  """An invertible map f with params, instead of the linear map C.

  The sampler moves z = f^-1(q) with identity mass, and returns q. `params` are
  a structure of Tensors that all chains share. They have no tangent. They are
  fitted to pairs of states and gradients, or learned by an optimizer that works
  on raw params.
  """

  name: str
  # (event_size, dtype, scale) -> params of f(z) = scale z. `scale`: [] Tensor.
  init: Callable[..., Any]
  # (params) -> a new `tfp.bijectors.Bijector` f of rows [..., event_size]. It
  # is twice differentiable in z and in the params. If the params are fitted,
  # one derivative in z is enough.
  bijector: Callable[[Any], Any]
  # (params) -> the positive scale that f gives each coordinate of q,
  # [event_size].
  scales: Callable[[Any], Any]
  # (params, factor) -> params of factor * f, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # First scale, as in `Preconditioner`.
  init_scale: float | Callable[[int], float] | None = None
  # (params, states [n, d], gradients [n, d]) -> params of the least Fisher
  # divergence on these pairs. It is called between blocks of steps, with pairs
  # as float64 NumPy arrays. None for params that are learned by gradient.
  fit: Callable[..., Any] | None = None
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Cost(NamedTuple):
  """What one step does for each chain, on average.

  The evaluation of the first state is not counted.
  """

  target: float = 0  # Values, including those that come with a gradient.
  gradient: float = 0
  # Products of the target's Hessian with a vector. The value and gradient that
  # such a product differentiates are not counted again.
  hessian_vector: float = 0
  # Products of a vector with C, C^T or C^-1, for any structure, including
  # backpropagation. With a Gaussian prior, changes between the state and the
  # prior's coordinates count instead. Moves of the params are not counted,
  # because all chains share them. None if unknown.
  matrix_product: float | None = None

  def plus(self, other: 'Cost') -> 'Cost':
    """Returns the sum; `matrix_product` is `None` if either count is `None`."""
    products: float | None = None
    if self.matrix_product is not None and other.matrix_product is not None:
      products = self.matrix_product + other.matrix_product
    return Cost(
      self.target + other.target,
      self.gradient + other.gradient,
      self.hessian_vector + other.hessian_vector,
      products,
    )
