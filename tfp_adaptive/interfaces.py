"""The contracts of the parts: the first file to read.

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
from typing import Union

__all__ = [
  'Adaptation',
  'Cost',
  'Criterion',
  'Feedback',
  'Optimizer',
  'Preconditioner',
  'Replay',
  'ScaleFactor',
  'Slopes',
  'Transition',
]


class Preconditioner(NamedTuple):
  """A structure of the proposal's scale factor C (proposal covariance C C^T).

  `params` are the raw entries of C or of its inverse factor, shared by all
  chains: a Tensor or a tuple of Tensors, without chain dimensions. A `tangent`
  E has the structure of `params` and moves C to C (I + E): a gradient with
  respect to it does not depend on the scale of the coordinates.
  """

  name: str
  # (event_size, dtype, scale) -> params of C = scale * I. `scale`: [] Tensor.
  init: Callable[..., Any]
  # (params) -> tf.linalg.LinearOperator C.
  operator: Callable[[Any], Any]
  # (tangent) -> tf.linalg.LinearOperator E, projected on the structure, so
  # that gradients come out projected too.
  tangent_operator: Callable[[Any], Any]
  # (params, tangent) -> params of C (I + E), or of any factor whose C C^T
  # agrees with it to first order. Safe for a tangent of any size: bounded so
  # that no direction shrinks or grows by more than about a factor of two.
  move: Callable[[Any, Any], Any]
  # (params, factor) -> params of factor * C, factor [] and positive.
  rescale: Callable[[Any, Any], Any]
  # (params) -> params, made invertible again after a Euclidean step.
  project: Callable[[Any], Any]
  # First scale: a float, a function of the event size, or None: found by the
  # adaptation in its first steps.
  init_scale: Optional[Union[float, Callable[[int], float]]] = None


class ScaleFactor(NamedTuple):
  """C (I + E) as the three things that a proposal does with it."""

  # (v) -> C (I + E) v for rows v, [chains..., event_size].
  apply: Callable[[Any], Any]
  # (g) -> (I + E)^T C^T g for rows g, [chains..., event_size].
  apply_adjoint: Callable[[Any], Any]
  # log |det C (I + E)| up to a constant, []; its gradient is exact.
  log_abs_det: Any


class Transition(NamedTuple):
  """One proposed move as a differentiable function of the tangent.

  Every field is one number per chain unless it says otherwise; values are
  those of the step just taken, gradients those of the replay.
  """

  # log of the Metropolis-Hastings ratio, [chains...].
  log_accept_ratio: Any
  # Entropy of the proposal up to a constant, [] or [chains...].
  proposal_entropy: Any
  # y - x, [chains..., event_size].
  displacement: Any
  # Zero for every tangent in value; its gradient has mean zero and cancels
  # noise of the gradient of min(0, log_accept_ratio). [chains...].
  control_variate: Any
  # Whether the ratio and all gradients are finite, [chains...] bool. Fields of
  # other chains hold finite stand-ins, and criteria must not reward them.
  is_finite: Any
  # Whether the move was accepted, [chains...] bool.
  is_accepted: Any


class Replay(NamedTuple):
  """What a proposal hands to the adaptation after a step."""

  # (ScaleFactor) -> Transition: the step as a function of C.
  transition: Callable[[ScaleFactor], Transition]
  # Carried to the next adapting step; [] where nothing is.
  cache: Any


class Adaptation(NamedTuple):
  """The size of the problem, from which parts choose their rates."""

  event_size: Any  # d, Python int where it is static, else [] int32.
  num_chains: Any  # B, Python int where it is static, else [] int32.
  num_params: Any  # Entries of the params, Python int or [] int32.
  num_steps: int  # Adapting steps in all.
  dtype: Any  # Of the state.


class Slopes(NamedTuple):
  """Slopes in the log scale: traces of both gradients per coordinate, []."""

  value: Any
  entropy: Any
  is_searching: Any  # [] bool: the first scale is still being searched.


class Feedback(NamedTuple):
  """What a criterion tells the optimizer beside the gradient."""

  # The gradient is in units of this, [].
  objective_scale: Any
  # Mean acceptance minus the wanted one, []; 0 if the gradient itself steers
  # the scale.
  accept_excess: Any


class Criterion(NamedTuple):
  """What is maximised: mean value + entropy_weight * mean proposal entropy."""

  name: str
  # (adaptation: Adaptation) -> state, the criterion's own slow variables.
  init: Callable[[Adaptation], Any]
  # (state, transition) -> value per chain, [chains...], without the entropy.
  value: Callable[[Any, Transition], Any]
  # (state) -> weight of the entropy, []; 0.0 if it has none.
  entropy_weight: Callable[[Any], Any]
  # (state, transition, slopes, adaptation) -> state.
  update: Callable[..., Any]
  # (state, transition) -> Feedback.
  feedback: Callable[[Any, Transition], Feedback]
  # (state) -> dict of [] Tensors worth tracing, by name.
  trace: Callable[[Any], dict]
  # name in `trace` -> (lower, upper): a value at a bound is worth a warning.
  bounds: dict
  # Acceptance that ends the scale search.
  target_accept_prob: float


class Optimizer(NamedTuple):
  """A rule that turns gradients into the next params."""

  name: str
  # True: `grads` are with respect to the tangent; False: to raw params.
  is_relative: bool
  # (params, adaptation) -> state.
  init: Callable[..., Any]
  # (grads, state, params, preconditioner, feedback, adaptation)
  # -> (params, state).
  update: Callable[..., Any]


class Cost(NamedTuple):
  """Calls of the target that one step makes, per chain."""

  target: int = 0  # Values, including those that come with a gradient.
  gradient: int = 0
  hessian_vector: int = 0
