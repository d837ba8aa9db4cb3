"""The contracts of one family each, and the ledger of what a step costs.

  latent      GaussianPrior, with its Covariance and its Smoother
  surrogate   Surrogate
  transport   Transport

Parts are NamedTuples of pure functions, as those of `shared.py`.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

__all__ = [
  'Cost',
  'Covariance',
  'GaussianPrior',
  'Smoother',
  'Surrogate',
  'Transport',
]


class GaussianPrior(NamedTuple):
  """A prior N(mean, C) of a latent field, at the price of C's structure.

  Samplers work in the prior's own coordinates s, rows [chains..., d], in which
  functions of C are cheap: s = U^T (x - mean) with orthogonal U where C is
  U diag(gamma) U^T, x - mean itself where the precision is banded. `params` are
  Tensors; they may carry the leading chain dimensions of a prior that depends
  on hyperparameters, and every function below broadcasts over them.
  """

  name: str
  # Shape of the state without chain dimensions, ints; d is its product.
  event_shape: tuple[int, ...]
  # Mean and decomposition, a structure of Tensors of one floating dtype.
  params: Any
  # (params, x) -> coordinates s of x, rows [chains..., d].
  to_coordinates: Callable[[Any, Any], Any]
  # (params, s) -> x, the inverse.
  from_coordinates: Callable[[Any, Any], Any]
  # (params, g) -> coordinates of a gradient in x: adjoint of from_coordinates
  # without the mean, so that (x - mean) . g = s . pull(g).
  pull: Callable[[Any, Any], Any]
  # (params) -> Covariance in these coordinates.
  covariance: Callable[[Any], 'Covariance']
  # (params, variance) -> Smoother in these coordinates, variance [] positive.
  smoother: Callable[[Any, Any], 'Smoother']
  # (state [chains..., event_shape...]) -> the part of it that the likelihood
  # sees; None: all of it.
  restrict: Callable[[Any], Any] | None = None
  # Whether C has no inverse, to working precision.
  is_singular: bool = False
  # The call of the factory, which is what is printed.
  shown: str = ''

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Covariance(NamedTuple):
  """Functions of the prior covariance C, on rows in its coordinates."""

  # (v) -> C v.
  multiply: Callable[[Any], Any]
  # (e) -> rows of N(0, C) from rows e ~ N(0, I).
  draw: Callable[[Any], Any]
  # (v) -> C^-1 v, the pseudo-inverse where C is singular.
  solve: Callable[[Any], Any]
  # (s) -> log N(s | 0, C), [chains...].
  log_prob: Callable[[Any], Any]


class Smoother(NamedTuple):
  """Functions of R = C (C + t I)^-1, on rows in the prior's coordinates.

  R z and t R are mean and covariance of a field s ~ N(0, C) that was seen as
  z ~ N(s, t I), t the variance.
  """

  # (v) -> R v.
  gain: Callable[[Any], Any]
  # (v, e) -> R v + noise of covariance t R, from rows e ~ N(0, I).
  draw: Callable[[Any, Any], Any]
  # (v, e) -> R v + noise of covariance t R (I + R): the law of `draw` at
  # v + N(0, t I).
  draw_marginal: Callable[[Any, Any], Any]
  # (v) -> (I + R)^-1 v.
  solve_marginal: Callable[[Any], Any]
  # (z) -> log N(z | 0, C + t I), [chains...].
  log_marginal: Callable[[Any], Any]


class Surrogate(NamedTuple):
  """A log density that is learned from draws alone, by score matching.

  `params` are a structure of Tensors without chain dimensions; whatever is
  learned, bandwidth, regularisation and metric included, is in them. Rows are
  [chains..., d], draws [n, d] with weights [n] that are not negative, sum to
  one, and are zero for rows that hold no draw.
  """

  name: str
  # Draws that a fit uses, n: the size of the history to keep.
  num_points: int
  # (event_size, dtype, seed) -> params that know nothing: the score is zero.
  init: Callable[..., Any]
  # (params, points, weights, seed) -> params, fitted to the draws from scratch.
  # Bandwidth and regularisation are chosen by cross-validation, around those
  # in `params`. Params with a non-finite entry mean that the fit failed.
  fit: Callable[..., Any]
  # (params, x) -> log density up to a constant, [chains...].
  log_prob: Callable[[Any, Any], Any]
  # (params, x) -> the field that drives trajectories, [chains..., d]: the
  # gradient of `log_prob` where there are draws, fading to zero far away.
  score: Callable[[Any, Any], Any]
  # (params, x) -> bool [chains...]: whether x lies among the draws.
  is_inside: Callable[[Any, Any], Any]
  # (params, rows [b, d]) -> params with draws added, at a price independent of
  # how many were seen; None: only `fit` learns.
  update: Callable[[Any, Any], Any] | None = None
  # The call of the factory, which is what is printed.
  shown: str = ''

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Transport(NamedTuple):
  """An invertible map f with params, in place of the linear map C.

  The sampler moves z = f^-1(q) with identity mass, and returns q. `params` are
  a structure of Tensors shared by all chains. There is no tangent: they are
  fitted to pairs, or optimizers work on the raw params.
  """

  name: str
  # (event_size, dtype, scale) -> params of f(z) = scale z. `scale`: [] Tensor.
  init: Callable[..., Any]
  # (params) -> a new `tfp.bijectors.Bijector` f of rows [..., event_size], with
  # two derivatives in z and in the params; where they are fitted, one in z.
  bijector: Callable[[Any], Any]
  # (params) -> positive scales of the coordinates of q in f, [event_size].
  scales: Callable[[Any], Any]
  # (params, factor) -> params of factor * f, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # First scale, as in `Preconditioner`.
  init_scale: float | Callable[[int], float] | None = None
  # (params, states [n, d], gradients [n, d]) -> params of the least Fisher
  # divergence on these pairs, NumPy arrays in float64, called between blocks of
  # steps; None: learned by gradient.
  fit: Callable[..., Any] | None = None
  # The call of the factory, which is what is printed.
  shown: str = ''

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Cost(NamedTuple):
  """What one step does for each chain; the mean where that is random.

  The first state is not counted: a start evaluates it once.
  """

  target: float = 0  # Values, including those that come with a gradient.
  gradient: float = 0
  # Products of the target's Hessian with a vector, each by differentiating a
  # gradient: that value and gradient are not counted once more.
  hessian_vector: float = 0
  # Products of a vector with C, its transpose or its inverse, of whatever
  # structure, backpropagation's included; for priors, changes between the state
  # and the prior's coordinates. What moves the params is shared by all chains
  # and not counted. None: not stated.
  matrix_product: float | None = None

  def plus(self, other: 'Cost') -> 'Cost':
    """Returns the sum; what one of them does not state is not stated."""
    products: float | None = None
    if self.matrix_product is not None and other.matrix_product is not None:
      products = self.matrix_product + other.matrix_product
    return Cost(
      self.target + other.target,
      self.gradient + other.gradient,
      self.hessian_vector + other.hessian_vector,
      products,
    )
