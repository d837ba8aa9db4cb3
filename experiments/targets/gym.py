"""inference_gym's self-contained models, each under its own class name.

A model is sampled as one unconstrained vector u. `VectorModel` flattens the
model, and the model's own bijector T maps u to the space of the model:

  log pi(u) = log p(T(u)) + log |det dT/du|
"""

import inspect

import inference_gym.using_tensorflow as gym
import numpy as np
import pydantic
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.targets import gym_hierarchies
from experiments.targets import ill_conditioned
from experiments.targets import jax_density
from experiments.targets import plasma
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_DOWNLOADS = ('GermanCredit', 'RadonContextualEffects')
# Constructors of these models take `centered` and `use_fft` and ignore both.
_IGNORES_ARGUMENTS = 'VectorizedStochasticVolatility'
# A path, or units that are independent given the first coordinates.
_TWO_GLOBALS_FIRST = {'arrow': {'num_globals': 2, 'globals_first': True}}
_THREE_GLOBALS_FIRST = {'arrow': {'num_globals': 3, 'globals_first': True}}
_STRUCTURES = {
  'BrownianMotionUnknownScalesMissingMiddleObservations': _TWO_GLOBALS_FIRST,
  'EightSchools': _TWO_GLOBALS_FIRST,
  'StochasticVolatilitySP500': _THREE_GLOBALS_FIRST,
  'StochasticVolatilitySP500Small': _THREE_GLOBALS_FIRST,
}
# {name: module with the same density in far less time}.
_FASTER = {
  'IllConditionedGaussian': ill_conditioned,
  'SyntheticPlasmaSpectroscopy': plasma,
  'SyntheticPlasmaSpectroscopyWithBump': plasma,
}
# Largest size of a gym model, because some build dense matrices.
_MAX_SIZE = 10**4
_MAX_SEED = 2**32 - 1
_NAMES_ONLY = ('name', 'pretty_name')


class VectorPrior(tfp.distributions.Distribution):
  """The prior of a model's unconstrained vector, with draws and a density."""

  def __init__(self, model, vector_model):
    self._prior = model.prior_distribution()
    self._model = vector_model
    self._bijector = vector_model.default_event_space_bijector
    super().__init__(
      dtype=vector_model.dtype,
      reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
      validate_args=False,
      allow_nan_stats=True,
    )

  def _batch_shape(self):
    return tf.TensorShape([])

  def _event_shape(self):
    return self._model.event_shape

  def _sample_n(self, n, seed=None):
    draws = self._prior.sample(n, seed=seed)
    return self._bijector.inverse(self._model.structured_event_to_vector(draws))

  def _log_prob(self, u):
    u = tf.identity(u)  # As in `gym_target`.
    values = self._model.vector_event_to_structured(self._bijector.forward(u))
    log_det = self._bijector.forward_log_det_jacobian(u, event_ndims=1)
    return self._prior.log_prob(values) + log_det


def gym_target(name, model, dtype):
  """Returns an inference_gym model as a target over a vector.

  Args:
    dtype: 'float32' or 'float64', which must be the model's own.
  """
  vector_model = gym.targets.VectorModel(model)
  own_dtype = vector_model.dtype.name
  if dtype != own_dtype:
    raise ValueError(
      f'dtype: {dtype!r} was given, but inference_gym builds {name} in '
      f'{own_dtype!r}. Write dtype: {own_dtype}.'
    )
  bijector = vector_model.default_event_space_bijector

  def target_log_prob_fn(u):
    # Every call makes a new tensor, because bijectors cache values by tensor. A
    # value from one branch of `tf.cond` must not be used in another.
    u = tf.identity(u)
    return vector_model.unnormalized_log_prob(
      bijector.forward(u)
    ) + bijector.forward_log_det_jacobian(u, event_ndims=1)

  is_bayesian = isinstance(model, gym.targets.BayesianModel)
  prior = VectorPrior(model, vector_model) if is_bayesian else None

  def sample_prior(num_chains, seed):
    return prior.sample(num_chains, seed=[seed, 0]).numpy()

  identity = vector_model.sample_transformations['identity']

  def constrain(states):
    values = identity(bijector.forward(tf.convert_to_tensor(states)))
    return _named(values, identity.ground_truth_mean)

  return Target(
    name=name,
    target_log_prob_fn=target_log_prob_fn,
    event_size=int(vector_model.event_shape[0]),
    dtype=own_dtype,
    sample_prior=sample_prior if is_bayesian else None,
    prior=prior,
    constrain=constrain,
    structures=_STRUCTURES.get(name),
    ground_truth=ground_truth(identity),
  )


def ground_truth(moments):
  """Returns {name: (mean, deviation, standard error of the mean)}, or None.

  Args:
    moments: A sample transformation of a model.
  """
  if moments.ground_truth_standard_deviation is None:
    return None
  means = _named(moments.ground_truth_mean)
  deviations = _named(moments.ground_truth_standard_deviation)
  # Moments without a standard error are exact.
  errors = moments.ground_truth_mean_standard_error
  errors = {} if errors is None else _named(errors)
  return {
    name: tuple(
      np.asarray(part, np.float64)
      for part in (mean, deviations[name], errors.get(name, 0.0 * mean))
    )
    for name, mean in means.items()
  }


def _named(values, like=None):
  """Returns a flat {name: array} of a gym transformation's value.

  Args:
    like: The gym's means of these values, in its own structure, or None.
  """
  if isinstance(values, tuple) and isinstance(like, np.ndarray):
    # The values are a path, whose moments the gym has in one array.
    values = np.stack(values, axis=-like.ndim)
  if hasattr(values, '_asdict'):
    values = values._asdict()
  if not isinstance(values, dict):
    values = {'x': values}
  return {key: np.asarray(value) for key, value in values.items()}


def _build_from_gym(self, context):
  arguments = {key: getattr(self, key) for key in type(self).model_fields}
  name = arguments.pop('name')
  model = getattr(gym.targets, name)(**arguments)
  target = gym_target(name, model, context.dtype)._replace(
    jax_log_prob_fn=jax_density.gym_model(name, arguments),
    hierarchy=gym_hierarchies.HIERARCHIES.get(name, lambda: None)(),
    latent=gym_hierarchies.FIELDS.get(name, lambda: None)(),
  )
  faster = _FASTER.get(name)
  if faster is None:
    return target
  return target._replace(
    target_log_prob_fn=faster.target_log_prob_fn(model),
    jax_log_prob_fn=faster.jax_log_prob_fn(model),
  )


def _fields(name, model_class):
  """Returns the constructor's own arguments, or None if it needs data."""
  fields = {}
  for key, argument in inspect.signature(model_class).parameters.items():
    if argument.default is argument.empty:
      return None
    if key in _NAMES_ONLY or name.startswith(_IGNORES_ARGUMENTS):
      continue
    kind = type(argument.default)
    if argument.default is None:
      kind = float | None
    default = argument.default
    if kind is int:
      most = _MAX_SEED if key == 'seed' else _MAX_SIZE
      default = pydantic.Field(default, ge=int(key != 'seed'), le=most)
    fields[key] = (kind, default)
  return fields


def _register_all():
  for name in gym.targets.__all__:
    model_class = getattr(gym.targets, name)
    if name.startswith(_DOWNLOADS):
      TARGETS.refuse(
        name, 'inference_gym downloads its data through tensorflow_datasets.'
      )
      continue
    fields = _fields(name, model_class)
    if fields is None:
      continue
    doc = (model_class.__doc__ or name).strip().splitlines()[0]
    entry = pydantic.create_model(
      name, __base__=TargetParameters, __doc__=f'{doc} (gym)', **fields
    )
    entry.build = _build_from_gym
    TARGETS.register(name)(entry)


_register_all()
