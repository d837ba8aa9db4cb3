"""TFP's windowed NUTS: step size and diagonal mass in growing windows.

windowed NUTS samples joint distributions only. The target therefore becomes a
joint distribution of x with density 1 everywhere and an observed factor
log pi(x).
"""

import time
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers.base import find_field
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.targets.base import Form
from experiments.targets.registry import METHODS

tfd = tfp.distributions

_FEWEST_RESULTS = 4


class Result(NamedTuple):
  """The fields of `tfpa.sample`'s result that a cell reads."""

  states: Any
  trace: dict
  adaptation_trace: dict
  final_kernel_results: Any
  seconds: dict


def joint_distribution(target):
  """Returns a joint distribution of x whose density, given y, is the target.

  A proper prior would cause rounding errors. Beside the log density of N(0, I)
  at 1000, float32 loses tenths of the observed factor.
  """
  dtype = tf.as_dtype(target.dtype)
  flat = tfpa.ImproperUniform(target.event_size, dtype=dtype, name='x')

  def model():
    x = yield tfd.JointDistributionCoroutine.Root(flat)
    yield tfp.experimental.distributions.IncrementLogProb(
      target.target_log_prob_fn(x), name='y'
    )

  return tfd.JointDistributionCoroutine(model)


@METHODS.register('windowed_nuts')
class WindowedNuts(MethodParameters):
  """TFP's windowed NUTS with diagonal mass, without thinning."""

  max_tree_depth: int = Field(10, ge=1, le=15)
  parameterization: str | None = Field(
    None, description="one of the target's forms; draws are mapped back"
  )
  time_adaptation: bool = Field(
    False, description='run again with few results to time sampling alone'
  )

  is_peer: ClassVar[bool] = True

  def default_label(self):
    if self.parameterization is None:
      return 'NUTS (windowed)'
    return f'NUTS (windowed, {self.parameterization})'

  def build(self, target, options):
    if options.num_adaptation_steps < 40:
      raise ValueError(
        f'num_adaptation_steps: {options.num_adaptation_steps} was given, but '
        'windowed_nuts needs at least 40 for its windows.'
      )

    form = self._form(target)
    joint = joint_distribution(
      target._replace(target_log_prob_fn=form.target_log_prob_fn)
    )

    def run(init_state, seed, num_results):
      states, trace = tfp.experimental.mcmc.windowed_adaptive_nuts(
        num_results,
        joint,
        n_chains=options.num_chains,
        num_adaptation_steps=options.num_adaptation_steps,
        current_state={'x': init_state},
        max_tree_depth=self.max_tree_depth,
        trace_fn=_trace,
        discard_tuning=False,
        seed=seed,
        y=tf.zeros([0], target.dtype),
      )
      num_tuning = options.num_adaptation_steps
      tuning = trace['leapfrogs_taken'][:num_tuning]
      trace = {name: values[num_tuning:] for name, values in trace.items()}
      return states.x[num_tuning:], dict(trace, tuning_leapfrogs=tuning)

    compiled = tf.function(
      run, autograph=False, jit_compile=options.jit_compile
    )
    sample_fn = sampler(compiled, form, self.time_adaptation)
    return Method(None, None, None, sample_fn=sample_fn)

  def _form(self, target):
    """Returns the `Form` in which to sample."""
    name = self.parameterization
    if name is None:
      return Form(target.target_log_prob_fn, tf.identity, tf.identity)
    forms = target.forms or {}
    if name not in forms:
      raise ValueError(
        f'parameterization: {name!r} was given, but {target.name} has '
        f'{", ".join(forms) or "no other forms"}. Write one of these, or '
        'leave parameterization out.'
      )
    return forms[name]


def _trace(state, bijector, is_adapting, kernel_results):
  """Returns the trace that `tfpa.sample` would record."""
  del state, bijector, is_adapting
  names = {
    'target_log_prob': 'target_log_prob',
    'is_accepted': 'is_accepted',
    'log_accept_ratio': 'log_accept_ratio',
    'diverging': 'has_divergence',
    'leapfrogs_taken': 'leapfrogs_taken',
  }
  return {key: find_field(kernel_results, f) for key, f in names.items()}


def sampler(compiled, form, time_adaptation):
  """Returns a function with the keyword arguments of `tfpa.sample`."""

  def sample_fn(init_state, num_results, seed, **unused):
    del unused  # `tfpa.sample` takes them.
    start = form.to_form(tf.convert_to_tensor(init_state))
    arguments = (start, tf.constant(seed))
    states, trace, seconds = _timed(compiled, (*arguments, num_results))
    if time_adaptation:
      # Adaptation and sampling are one program. Two programs with the same
      # adaptation differ by the time of the additional results.
      _, _, short = _timed(compiled, (*arguments, _FEWEST_RESULTS))
      num_more = num_results - _FEWEST_RESULTS
      run_time = seconds['sampling']
      per_result = (run_time - short['sampling']) / max(num_more, 1)
      sampling = float(np.clip(per_result * num_results, 0.0, run_time))
      seconds.update(adaptation=run_time - sampling, sampling=sampling)
    leapfrogs = {'leapfrogs_taken': trace.pop('leapfrogs_taken')}
    tuning = {'leapfrogs_taken': trace.pop('tuning_leapfrogs')}
    return Result(
      states=np.asarray(form.from_form(states)),
      trace=dict(trace, extra=leapfrogs),
      adaptation_trace={'extra': tuning},
      final_kernel_results=None,
      seconds=seconds,
    )

  return sample_fn


def _timed(compiled, arguments):
  """Returns states, trace on the host, and the seconds of a run."""
  # The first call compiles the program, which XLA does again for every seed.
  # The second call is timed.
  taken = []
  for _ in range(2):
    start = time.perf_counter()
    states, trace = compiled(*arguments)
    trace = {name: value.numpy() for name, value in trace.items()}
    states = states.numpy()
    taken.append(time.perf_counter() - start)
  first, seconds = taken
  # All seconds count as sampling unless `sampler` separates adaptation.
  phases = {'adaptation': 0.0, 'sampling': seconds}
  return states, trace, {'compile': max(first - seconds, 0.0), **phases}
