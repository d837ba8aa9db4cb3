"""Escapes characters of labels that Markdown or matplotlib takes for markup."""

import re

_MARKUP = re.compile(r'([\\`*<>\[\]|$#&~]|(?<!\w)_|_(?!\w))')


def in_figure(label):
  """Returns text that matplotlib shows as the label, dollars included."""
  return label.replace('$', r'\$')


def in_markdown(text):
  """Returns Markdown that shows a text as it is, also in a table."""
  return _MARKUP.sub(r'\\\1', text)
