"""The params of a transport as adaptation wrappers handle params."""

import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = ['as_preconditioner']


def as_preconditioner(transport):
  """Returns the transport's params in the contract of `Preconditioner`.

  The operator is the map's scale; moves by a tangent are refused.
  """

  def refuse(*_):
    raise ValueError(
      'A transport has no tangent: it cannot be learned by an optimizer that '
      'is relative. Use for example `optimizer=tfpa.optimizers.adam(1e-3)`.'
    )

  return interfaces.Preconditioner(
    name=transport.name,
    init=transport.init,
    operator=lambda params: tf.linalg.LinearOperatorDiag(
      transport.scales(params), is_non_singular=True
    ),
    outer=refuse,
    log_det_gradient=refuse,
    slope=refuse,
    move=refuse,
    rescale=transport.rescale,
    project=lambda params: params,
    init_scale=transport.init_scale,
  )
