"""Tells namedtuples from other tuples.

No type says that a tuple has names. TFP's `StructTuple` is no namedtuple of
Python either, but has the same methods.
"""


def is_namedtuple(value):
  """Returns whether a value is a namedtuple or a `StructTuple` of TFP."""
  return hasattr(value, '_asdict')


def is_sequence(value):
  """Returns whether a value is a list, or a tuple without names."""
  return isinstance(value, (list, tuple)) and not is_namedtuple(value)


def as_dict(structure):
  """Returns a namedtuple as a dict, and any other value as it is."""
  return structure._asdict() if is_namedtuple(structure) else structure


def fields(value):
  """Returns the field names of a namedtuple, and () for any other value."""
  return value._fields if is_namedtuple(value) else ()
