"""An extension of griffe, which reads the code for mkdocstrings."""

import griffe

from experiments.report.docstrings import as_literal
from experiments.report.docstrings import comment_of
from experiments.report.docstrings import with_fenced_formulas


class Docstrings(griffe.Extension):
  """Fences formulas; makes the comments of fields their explanations."""

  def on_instance(self, *, obj, **kwargs):
    del kwargs
    if not obj.is_alias and obj.docstring:
      obj.docstring.value = with_fenced_formulas(obj.docstring.value)

  def on_class_members(self, *, cls, **kwargs):
    del kwargs
    fields = [
      a for a in cls.attributes.values() if not a.is_alias and a.annotation
    ]
    if not fields or not cls.docstring:
      return
    if 'Attributes:' in cls.docstring.value:
      return
    lines = cls.lines_collection[cls.filepath]
    explained = [
      f'  {a.name}: {as_literal(comment_of(lines, a.lineno))}' for a in fields
    ]
    cls.docstring.value += '\n'.join(['\n\nAttributes:', *explained])
