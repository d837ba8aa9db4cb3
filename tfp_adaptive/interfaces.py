"""The contracts: the first file to read.

A *kernel* is a class, because TFP's contract is a class. A *part* is a
NamedTuple of pure functions, returned by a snake_case factory. What evolves is
a Tensor in the kernel results; a part holds constants only.

One adapting step, as data (B chains, d = event size):

  proposal     y = x + noise shaped by C(params)               [B, d]
  MH           log_accept_ratio r, is_accepted                 [B]
  replay       tangent E -> Transition at C(I + E)             no target call
  criterion    Transition -> one number per chain              [B]
  tape         A = mean over chains of d value / d E at E = 0
  optimizer    params <- move(params, rate * A)

Everything below works on states flattened to [chains..., event_size].
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional
from typing import Protocol
from typing import Union

__all__ = [
  'Cost',
  'Covariance',
  'Criterion',
  'Feedback',
  'GaussianPrior',
  'Optimizer',
  'Preconditioner',
  'ProblemSize',
  'Proposal',
  'Replay',
  'ScaleFactor',
  'Slopes',
  'Smoother',
  'Surrogate',
  'Transition',
  'Transport',
]


class Proposal(Protocol):
  """An uncalibrated kernel: what adaptations ask beyond TFP's contract.

  Its results are a namedtuple of plain Tensors with, at least, the fields
  `target_log_prob` and `log_acceptance_correction` = log q(x|y) - log q(y|x),
  both [chains...], `step_size`, `seed` [2] int32, and `noise`, the standard
  normals of the step, [chains..., d]. Where a factor is learned they have
  `preconditioner_params`, and `grads_target_log_prob`, `[]` without gradients.
  Fields that do not change are passed on, never rebuilt. `core/proposal.py` has
  a base class.
  """

  # The structure of C. Proposals behind a map or along a surrogate have a
  # `transport` or a `surrogate` as well.
  preconditioner: 'Preconditioner'
  # Whether a step evaluates the gradient at the proposal.
  uses_gradient: bool = False
  # Share of the steps that teach, on average.
  teaching_share: float = 1.0

  def cost(self, adapting) -> 'Cost':
    """Returns what a step does; `adapting`: with its replay."""

  def can_teach(self, proposed_results):
    """Returns whether adaptations learn from this step, [] bool."""

  def init_replay_cache(self, proposed_results):
    """Returns what the first replay is given; `[]` for nothing."""

  def replay(
    self, cache, previous, proposed, proposed_state, mh_results
  ) -> 'Replay':
    """Returns the step just taken as a function of C.

    Its randomness and the gradients it has are constants.

    Args:
      cache: What the last replay left.
      previous: This kernel's results before the step.
      proposed: Its results at the proposed state.
      proposed_state: In the structure of the state.
      mh_results: Those of Metropolis-Hastings: ratio and decision.
    """


class Preconditioner(NamedTuple):
  """A structure of the proposal's scale factor C (proposal covariance C C^T).

  `params` are the raw entries of C or of its inverse factor, shared by all
  chains: a Tensor or a tuple of Tensors, without chain dimensions. A `tangent`
  has the structure of `params` and moves C to C (I + E), E linear in it. Each
  structure takes the coordinates in which its own move is simple: the entries
  of E itself (diagonal, dense), or a change of the entries of C^-1 (banded).
  """

  name: str
  # (event_size, dtype, scale) -> params of C = scale * I. `scale`: [] Tensor.
  init: Callable[..., Any]
  # (params) -> tf.linalg.LinearOperator C.
  operator: Callable[[Any], Any]
  # (params, left, right, push) -> gradient with respect to the tangent, at
  # zero, of the sum over rows of a^T C (I + E) b. Rows [n, d]: left = C^T a,
  # right = b; push() returns C b for structures that need it.
  outer: Callable[..., Any]
  # (params) -> gradient of log |det C (I + E)| with respect to the tangent.
  log_det_gradient: Callable[[Any], Any]
  # (params, grads) -> derivative in the log scale of C, [], from the gradient
  # with respect to the tangent; for E itself, its trace.
  slope: Callable[[Any, Any], Any]
  # (params, tangent) -> params after the step of natural gradient whose
  # tangent is half the gradient: C C^T moves by twice E. Invariant to the
  # scale of the coordinates, and safe for a tangent of any size: no direction
  # shrinks or grows by more than about a factor of two.
  move: Callable[[Any, Any], Any]
  # (params, factor) -> params of factor * C, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # (params) -> params, made invertible again after a Euclidean step.
  project: Callable[[Any], Any]
  # First scale: a float, a function of the event size, or None: found by the
  # adaptation in its first steps.
  init_scale: Optional[Union[float, Callable[[int], float]]] = None
  # Whether `init` takes the list of the sizes of the state's parts instead.
  takes_part_sizes: bool = False
  # (covariance of states, of gradients) -> params of the least Fisher
  # divergence; None: no closed form, moves find it.
  fisher_factor: Optional[Callable[[Any, Any], Any]] = None


class ScaleFactor(NamedTuple):
  """C (I + E) as the three things that a proposal does with it."""

  # (v) -> C (I + E) v for rows v, [chains..., event_size].
  apply: Callable[[Any], Any]
  # (g) -> (I + E)^T C^T g for rows g, [chains..., event_size].
  apply_adjoint: Callable[[Any], Any]
  # log |det C (I + E)| up to a constant, []; its gradient is exact.
  log_abs_det: Any
  # (e, v) -> for rows whose e v^T has mean I, 0 with the gradient of
  # e^T E v - log |det (I + E)|, whose mean is zero: a control variate.
  # [chains...]; without a gradient where C is a function of raw params.
  centered_stretch: Callable[[Any], Any]
  # The raw params, where C is a function of them and not of a tangent.
  params: Any = None


class Transport(NamedTuple):
  """An invertible map f with params, in place of the linear map C.

  The sampler moves z = f^-1(q) with identity mass, and returns q. `params` are
  a structure of Tensors shared by all chains. There is no tangent: optimizers
  work on the raw params.
  """

  name: str
  # (event_size, dtype, scale) -> params of f(z) = scale z. `scale`: [] Tensor.
  init: Callable[..., Any]
  # (params) -> a new `tfp.bijectors.Bijector` f of rows [..., event_size], with
  # two derivatives in z and in the params.
  bijector: Callable[[Any], Any]
  # (params) -> positive scales of the coordinates of q in f, [event_size].
  scales: Callable[[Any], Any]
  # (params, factor) -> params of factor * f, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # First scale, as in `Preconditioner`.
  init_scale: Optional[Union[float, Callable[[int], float]]] = None
  # (params, states [n, d], gradients [n, d], weights [n]) -> params of the
  # least Fisher divergence on these pairs; None: learned by gradient.
  fit: Optional[Callable[..., Any]] = None


class Transition(NamedTuple):
  """One proposed move as a function of the tangent, one number per chain.

  Values are those of the step just taken, gradients those of the replay.
  """

  # log of the Metropolis-Hastings ratio, [chains...].
  log_accept_ratio: Any
  # Entropy of the proposal up to a constant, [] or [chains...].
  proposal_entropy: Any
  # The part of it that depends on the target: log det(I + D), I + D the
  # Jacobian of noise -> y per C; 0 where that map is linear.
  log_jacobian: Any
  # y - x, [chains..., event_size].
  displacement: Any
  # log pi(y), [chains...]; where y diverged, any finite number.
  proposed_log_prob: Any
  # Zero for every tangent in value; its gradient has mean zero and cancels
  # noise of the gradient of min(0, log_accept_ratio). [chains...].
  control_variate: Any
  # Whether the ratio and all gradients are finite, [chains...] bool. Fields of
  # other chains hold finite stand-ins, and criteria must not reward them.
  is_finite: Any
  # Whether the move was accepted, [chains...] bool.
  is_accepted: Any
  # Largest eigenvalue of D in absolute value, [chains...]; 0 without D.
  jacobian_eigenvalue: Any = 0.0
  # Terms of the estimate of log det(I + D), [] int32; 0 where there is none.
  num_log_det_terms: Any = 0


class Replay(NamedTuple):
  """What a proposal hands to the adaptation after a step."""

  # (ScaleFactor) -> Transition: the step as a function of C.
  transition: Callable[[ScaleFactor], Transition]
  # Carried to the next adapting step; [] where nothing is.
  cache: Any


class ProblemSize(NamedTuple):
  """The size of the problem, from which parts choose their rates."""

  event_size: Any  # d, Python int where it is static, else [] int32.
  num_chains: Any  # B, the same.
  num_params: Any  # Entries of the params, the same.
  dtype: Any  # Of the state.


class Slopes(NamedTuple):
  """Slopes in the log scale: traces of both gradients per coordinate, []."""

  value: Any
  entropy: Any
  is_searching: Any  # [] bool: the first scale is still being searched.


class Feedback(NamedTuple):
  """What a criterion tells the optimizer besides the gradient, [] each."""

  # The gradient is in units of this.
  objective_scale: Any
  # How far the log scale of C should move, in units of the optimizer's rate;
  # 0 if the gradient itself steers the scale.
  scale_force: Any


class Criterion(NamedTuple):
  """What is maximised: mean value + entropy_weight * mean entropy."""

  name: str
  # (problem: ProblemSize) -> state, the criterion's own slow variables.
  init: Callable[[ProblemSize], Any]
  # (state, transition) -> value per chain, [chains...], without the entropy.
  value: Callable[[Any, Transition], Any]
  # (state, transition) -> entropy, penalties included, [] or [chains...].
  entropy: Callable[[Any, Transition], Any]
  # (state) -> weight of the entropy, []; 0.0 if it has none.
  entropy_weight: Callable[[Any], Any]
  # (state, transition, slopes, problem) -> state.
  update: Callable[..., Any]
  # (state, transition) -> Feedback.
  feedback: Callable[[Any, Transition], Feedback]
  # (state) -> dict of [] Tensors worth tracing, by name.
  trace: Callable[[Any], dict]
  # name in `trace` -> (lower, upper): a value at a bound is worth a warning.
  bounds: dict
  # Acceptance that ends the scale search.
  target_accept_prob: float
  # Whether a settled acceptance above the target is as good as one at it.
  may_exceed_target: bool = False
  # Whether `update` needs slopes: only relative optimizers have them.
  needs_slopes: bool = False


class Optimizer(NamedTuple):
  """A rule that turns gradients into the next params."""

  name: str
  # True: `grads` are with respect to the tangent; False: to raw params.
  is_relative: bool
  # (params, problem) -> state.
  init: Callable[..., Any]
  # (grads, state, params, preconditioner, feedback, problem)
  # -> (params, state).
  update: Callable[..., Any]


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
  matrix_product: Optional[float] = None


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
  event_shape: tuple
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
  restrict: Optional[Callable[[Any], Any]] = None
  # Whether C has no inverse, to working precision.
  is_singular: bool = False


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
  # (params, points, weights) -> the objective on these draws, []: an estimate
  # of E |score - grad log pi|^2 / 2 up to a constant of the target.
  objective: Callable[..., Any]
  # (params, x) -> bool [chains...]: whether x lies among the draws.
  is_inside: Callable[[Any, Any], Any]
  # (params, rows [b, d]) -> params with draws added, at a price independent of
  # how many were seen; None: only `fit` learns.
  update: Optional[Callable[[Any, Any], Any]] = None
