"""Answers on a scale of five levels: cumulative logit with ordered cutpoints.

  slope_k ~ N(0, 1),  k = 1..6
  cutpoints = Ascending(z): c_1 = z_1, c_{m+1} = c_m + exp(z_{m+1})
  z_1 ~ N(-2, 2^2),  z_2, z_3, z_4 ~ N(0, 1)
  P(answer_i > m) = sigmoid(features_i . slope - c_m)

The gaps are log-normal, so cutpoints never meet. Data: simulated at a fixed
seed from this model, 500 answers. The middle level is rare, and columns of
`features` are correlated.
"""

import numpy as np


def data():
  rng = np.random.RandomState(102)
  features = rng.normal(size=(500, 6))
  features[:, 1:] += 0.7 * features[:, :1]
  noisy = features @ np.array([0.8, -0.5, 0.3, 0.0, 0.6, -0.2])
  noisy += rng.logistic(size=500)
  cutpoints = np.array([-2.5, -0.3, -0.1, 2.0])
  return dict(
    answer=(noisy[:, None] > cutpoints).sum(axis=1).astype(np.int64),
    features=features,
  )


def tfp_model(answer, features):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfb, tfd = tfp.bijectors, tfp.distributions
  features = np.float32(features)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    slope = yield tfd.Sample(tfd.Normal(0.0, 1.0), 6, name='slope')
    cutpoints = yield tfd.TransformedDistribution(
      tfd.MultivariateNormalDiag([-2.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0]),
      tfb.Ascending(),
      name='cutpoints',
    )
    eta = tf.linalg.matvec(features, slope)
    yield tfd.OrderedLogistic(cutpoints, eta, name='answer')

  return model.experimental_pin(answer=np.int32(answer))


def numpyro_model(answer, features):
  import numpyro
  from numpyro import distributions as dist

  loc = np.array([-2.0, 0.0, 0.0, 0.0])
  scale = np.array([2.0, 1.0, 1.0, 1.0])

  def model():
    with numpyro.plate('columns', 6):
      slope = numpyro.sample('slope', dist.Normal(0.0, 1.0))
    cutpoints = numpyro.sample(
      'cutpoints',
      dist.TransformedDistribution(
        dist.Normal(loc, scale).to_event(1), dist.transforms.OrderedTransform()
      ),
    )
    with numpyro.plate('rows', answer.size):
      numpyro.sample(
        'answer', dist.OrderedLogistic(features @ slope, cutpoints), obs=answer
      )

  return model


def pymc_model(answer, features):
  import pymc as pm
  import pytensor.tensor as pt

  with pm.Model() as model:
    slope = pm.Normal('slope', 0.0, 1.0, shape=6)
    cutpoints = pm.Flat(
      'cutpoints',
      shape=4,
      transform=pm.distributions.transforms.ordered,
      initval=[-2.0, -1.0, 0.0, 1.0],
    )
    pm.Potential('first', pm.logp(pm.Normal.dist(-2.0, 2.0), cutpoints[0]))
    gaps = pm.logp(pm.LogNormal.dist(0.0, 1.0), pt.diff(cutpoints))
    pm.Potential('gaps', gaps.sum())
    pm.OrderedLogistic(
      'answer', eta=features @ slope, cutpoints=cutpoints, observed=answer
    )
  return model
