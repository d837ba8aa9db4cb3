"""The contracts that all families share: the first file to read.

A *kernel* is a class, because TFP's contract is a class. A *part* is a
NamedTuple of pure functions, returned by a snake_case factory. Values that
change are Tensors in the kernel results; a part has constants only.

One adapting step and its shapes, for B chains and event size d:

    proposal     y = x + noise shaped by C(params)               [B, d]
    MH           log_accept_ratio r, is_accepted                 [B]
    replay       tangent E -> Transition at C(I + E)
    criterion    Transition -> value and entropy of every chain  [B]
    tape         A = d J / d E at E = 0, where
                 J = mean value + entropy_weight * mean entropy
    optimizer    params <- move(params, rate / 2 * A / objective_scale),
                 or a step on the raw params

q(y | x) is the density of the proposal. Unless a comment says otherwise, states
are flattened to [chains..., event_size].
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Protocol


class Proposal(Protocol):
  """An uncalibrated kernel with the additional methods that adaptations call.

  Its results are a namedtuple of Tensors with at least these fields:

      target_log_prob             [chains...]
      log_acceptance_correction   log q(x | y) - log q(y | x), [chains...]
      step_size                   multiplies C
      noise                       draws of the step, [chains..., d]
      seed                        [2] int32
      preconditioner_params       if C is learned
      grads_target_log_prob       if C is learned; `[]` without gradients

  A step passes unchanged fields on and never rebuilds them.
  `core/proposal.py` has a base class.
  """

  # The structure of C. A proposal along a surrogate also has a `surrogate`. A
  # proposal with a map also has a `transport`.
  preconditioner: 'Preconditioner | MapParams'
  # Whether a step evaluates the gradient at the proposed state.
  uses_gradient: bool = False

  def cost(self, adapting: bool) -> Any:
    """Returns the `interfaces.Cost` of a step, with a replay if `adapting`."""
    ...

  def init_replay_cache(self, proposed_results: Any) -> Any:
    """Returns the cache for the first replay; `[]` for none."""
    ...

  def replay(
    self,
    cache: Any,
    previous: Any,
    proposed: Any,
    proposed_state: Any,
    mh_results: Any,
  ) -> 'Replay':
    """Returns the step just taken as a function of C.

    The draws of the step are constants. A replay may treat the target's
    gradients along the step as functions of C, and may call the target.

    Args:
      cache: Cache from the last replay.
      previous: This kernel's results before the step.
      proposed: This kernel's results at the proposed state.
      proposed_state: Proposed state, in the structure of the state.
      mh_results: Results of Metropolis-Hastings, with ratio and decision.
    """
    ...


class Preconditioner(NamedTuple):
  """A structure of the proposal's scale factor C (proposal covariance C C^T).

  `params` are the numbers that define C, for example the entries of C or of its
  inverse. They are a Tensor or a tuple of Tensors, without chain dimensions,
  that all chains share. A `tangent` has the structure of `params` and moves C
  to C (I + E), where E is linear in the tangent. The tangent of a diagonal or
  dense C has the entries of E. Other structures define their tangents; for
  banded C^-1 it is a change of `params`.
  """

  name: str
  # (event_size, dtype, scale) -> params of a first C, scale * I or near it.
  # `scale` is a [] Tensor. `per_part` multiplies it by a scale of each block.
  init: Callable[..., Any]
  # (params) -> tf.linalg.LinearOperator C.
  operator: Callable[[Any], Any]
  # (params, factor) -> params of factor * C, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # The next five are None in a structure that only a fit to pairs can learn.
  # (params, left, right, push) -> gradient with respect to the tangent, at
  # zero, of the sum over rows of a^T C (I + E) b. Rows [n, d]: left = C^T a,
  # right = b; push() returns C b for structures that need it.
  outer: Callable[..., Any] | None = None
  # (params) -> gradient of log |det C (I + E)| with respect to the tangent.
  log_det_gradient: Callable[[Any], Any] | None = None
  # (params, grads) -> derivative in the log scale of C, [], from the gradient
  # with respect to the tangent; the trace of `grads` if the tangent is E.
  slope: Callable[[Any, Any], Any] | None = None
  # (params, tangent) -> params after a natural gradient step. Pass half the
  # gradient, times the rate, because C C^T moves by twice E. The step is
  # invariant to the scale of the coordinates, and safe for a tangent of any
  # size: no direction shrinks or grows by more than about a factor of two.
  move: Callable[[Any, Any], Any] | None = None
  # (params) -> params, made invertible again after a Euclidean step.
  project: Callable[[Any], Any] | None = None
  # First scale: a float, a function of the event size, or None if the
  # adaptation finds it in its first steps.
  init_scale: float | Callable[[int], float] | None = None
  # Whether `init` takes the list of the sizes of the state's parts instead of
  # the event size.
  takes_part_sizes: bool = False
  # (covariance of states, covariance of gradients) -> the dense C, [d, d], of
  # the least Fisher divergence (`linear/fisher_divergence.py`). Its params must
  # be C itself. None without such a closed form.
  fisher_factor: Callable[[Any, Any], Any] | None = None
  # (states, gradients, weights) -> params of the least Fisher divergence on
  # pairs, rows [n, d] around their means; None without such a fit. An
  # adaptation keeps n = `num_fisher_pairs` pairs. If both functions are None,
  # moves find the params.
  fisher_fit: Callable[[Any, Any, Any], Any] | None = None
  num_fisher_pairs: int = 0
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class MapParams(NamedTuple):
  """The params of a map that replaces C; they have no tangent.

  Fields are those of `Preconditioner`, except `fit`, which is that of
  `Transport`. It is `None` for params that are learned by gradient.
  """

  name: str
  init: Callable[..., Any]
  # (params) -> tf.linalg.LinearOperator, the diagonal of the map's scales.
  operator: Callable[[Any], Any]
  rescale: Callable[[Any, Any], Any]
  project: Callable[[Any], Any]
  init_scale: float | Callable[[int], float] | None = None
  takes_part_sizes: bool = False
  fit: Callable[..., Any] | None = None


class ScaleFactor(NamedTuple):
  """C (I + E) as the functions that a proposal uses."""

  # (v) -> C (I + E) v for rows v, [chains..., event_size].
  apply: Callable[[Any], Any]
  # (g) -> (I + E)^T C^T g for rows g, [chains..., event_size].
  apply_adjoint: Callable[[Any], Any]
  # log |det C (I + E)| up to a constant, []; its gradient is exact.
  log_abs_det: Any
  # (e, v) -> 0, [chains...], with the gradient of e^T E v - log |det (I + E)|.
  # The gradient has mean zero if e v^T has mean I, so that this is a control
  # variate. There is no gradient if C is a function of raw params.
  centered_stretch: Callable[[Any], Any]
  # The raw params, if C is a function of raw params instead of a tangent.
  params: Any = None


class Transition(NamedTuple):
  """One proposed move of every chain, as a function of tangent or raw params.

  Values are those of the last step, and gradients those of the replay.
  """

  # log of the Metropolis-Hastings ratio, [chains...].
  log_accept_ratio: Any
  # Entropy of the proposal up to a constant, [] or [chains...].
  proposal_entropy: Any
  # log det(I + D), the part of the entropy that depends on the target, where
  # C (I + D) is the Jacobian of noise -> y up to a factor; 0 if y is linear in
  # the noise.
  log_jacobian: Any
  # y - x, [chains..., event_size].
  displacement: Any
  # Zero, with the gradient of log pi(y), [chains...].
  proposed_log_prob: Any
  # Zero, with a gradient of mean zero, [chains...]. The gradient cancels noise
  # of the gradient of min(0, log_accept_ratio).
  control_variate: Any
  # Whether the ratio and all gradients are finite, [chains...] bool; a proposal
  # may also exclude huge energy errors. Where it is false, the other fields are
  # arbitrary finite values, which criteria must not reward.
  is_finite: Any
  # Whether the move was accepted, [chains...] bool.
  is_accepted: Any
  # Eigenvalue of D with the largest absolute value, [chains...]; 0 without D.
  jacobian_eigenvalue: Any = 0.0
  # Terms in the estimate of log det(I + D), [] int32; 0 without an estimate.
  num_log_det_terms: Any = 0
  # Whether a chain can move, [chains...] bool. It cannot if its density or
  # gradient is not finite. The adaptation sets this field, and means over
  # chains leave out the chains that cannot move.
  is_alive: Any = True


class Replay(NamedTuple):
  """The last step as a function of C, for an adaptation."""

  # (ScaleFactor) -> Transition: the step as a function of C.
  transition: Callable[[ScaleFactor], Transition]
  # Cache for the next adapting step; [] for none.
  cache: Any


class ProblemSize(NamedTuple):
  """The size of the problem, from which parts choose their rates."""

  event_size: Any  # d, a Python int if it is static, else [] int32.
  num_chains: Any  # B, likewise.
  num_params: Any  # Entries of the params, likewise.
  dtype: Any  # Dtype of the state.


class Slopes(NamedTuple):
  """Derivatives with respect to the log scale of C, divided by d, [] each."""

  value: Any  # Derivative of the mean value.
  entropy: Any  # Derivative of the mean entropy.
  is_searching: Any  # Whether the search for a first scale continues, [] bool.


class Feedback(NamedTuple):
  """What a criterion tells the optimizer besides the gradient, [] each."""

  # Unit of the gradient, by which a relative optimizer divides the gradient.
  objective_scale: Any
  # Wanted change of the log scale of C, which the optimizer multiplies by its
  # rate; 0 if the gradient is enough to adapt the scale.
  scale_force: Any


def _same_state(state: Any, *_: Any) -> Any:
  return state


def _no_feedback(*_: Any) -> Feedback:
  return Feedback(objective_scale=1.0, scale_force=0.0)


def _nothing(_: Any) -> dict[str, Any]:
  return {}


class Criterion(NamedTuple):
  """An objective to maximize: mean value + entropy_weight * mean entropy.

  The means are over the chains that can move (`Transition.is_alive`).
  """

  name: str
  # (problem: ProblemSize) -> state of the criterion.
  init: Callable[[ProblemSize], Any]
  # (state, transition) -> value per chain, [chains...], without the entropy.
  value: Callable[[Any, Transition], Any]
  # (state, transition) -> entropy with penalties, [] or [chains...]. The
  # entropy of a chain that diverged counts with the opposite sign.
  entropy: Callable[[Any, Transition], Any]
  # (state) -> weight of the entropy, []; 0.0 without entropy.
  entropy_weight: Callable[[Any], Any]
  # Wanted mean acceptance. The scale search ends when the acceptance crosses
  # it, and a final miss of more than 0.15 causes a warning.
  target_accept_prob: float
  # (state, transition, slopes, problem) -> state; by default the same state.
  update: Callable[..., Any] = _same_state
  # (state, transition) -> Feedback; by default the gradient adapts the scale.
  feedback: Callable[[Any, Transition], Feedback] = _no_feedback
  # (state) -> dict of [] Tensors worth tracing, by name.
  trace: Callable[[Any], dict[str, Any]] = _nothing
  # (problem) -> dict of name in `trace` -> (lower, upper). A value at its bound
  # causes a warning.
  bounds: Callable[[ProblemSize], dict[str, tuple[float, float]]] = _nothing
  # Whether a final acceptance above the target is as good as the target.
  may_exceed_target: bool = False
  # Whether `update` needs slopes: only relative optimizers have them.
  needs_slopes: bool = False
  # Whether value, entropy or `feedback` reduces the scale if every move is
  # rejected. If not, relative optimizers refuse the criterion.
  holds_scale: bool = True
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'


class Optimizer(NamedTuple):
  """A rule that computes the next params from gradients."""

  name: str
  # Whether `grads` are with respect to the tangent instead of the raw params.
  is_relative: bool
  # (params, problem) -> state.
  init: Callable[..., Any]
  # (grads, state, params, preconditioner, feedback, problem)
  # -> (params, state).
  update: Callable[..., Any]
  shown: str = ''  # The call of the factory, which is printed.

  def __repr__(self) -> str:
    return self.shown or f'{type(self).__name__}({self.name!r})'
