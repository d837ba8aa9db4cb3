"""Log densities of each model of `rivals` in its three languages.

All languages are compared at the same points, with unknowns in their supports.
"""

import numpy as np
import tensorflow as tf

from experiments import models
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.studies import rivals

_NUM_POINTS = 3
# Largest relative difference of log densities; TFP's are in float32.
_LARGEST_GAP = 1e-4


def points(model):
  """Returns points in the supports of a model's unknowns, a structure.

  Points are normal with deviation 1/2 in the space without bounds of TFP's
  bijectors.
  """
  unbounded = model.experimental_default_event_space_bijector()
  shapes = unbounded.inverse_event_shape(model.event_shape)
  random = np.random.RandomState(0)
  return unbounded.forward(
    tf.nest.map_structure(
      lambda shape: tf.constant(
        0.5 * random.normal(size=[_NUM_POINTS, *shape]), tf.float32
      ),
      shapes,
    )
  )


def _run(name: str, seed: int, work: Work):
  """Returns the densities of a model; fails if the languages differ."""
  del seed  # Points are always the same.
  module = models.load(name)
  data = module.data()
  model = module.tfp_model(**data)
  at = points(model)
  found = {
    'tfp': model.unnormalized_log_prob(at).numpy(),
    **on_models.execute(
      {'model': models.path(name), 'sampler': 'The densities'},
      work.python,
      data=data,
      points={key: part.numpy() for key, part in at._asdict().items()},
    ),
  }
  values = np.stack(list(found.values()))
  gap = np.ptp(values, axis=0) / (1.0 + np.abs(values).max(axis=0))
  if not gap.max() < _LARGEST_GAP:
    raise ValueError(f'the languages differ by {gap.max():.1e}: {found}.')
  return {'gap': float(gap.max()), **found}


STUDY = Study(
  lambda settings: {name: name for name in models.MODELS},
  _run,
  prepare=rivals.prepare,
)
