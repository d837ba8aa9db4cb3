"""Hooks of MkDocs: tables and formulas are made, notebooks become pages.

Nothing is written into docs/; the new pages exist for one build only.
"""

import json
import os
import pathlib
import re

from mkdocs.structure.files import File

import tfp_adaptive as tfpa
from experiments.report import figures
from experiments.report import formulas
from experiments.report import templates
from experiments.report.notebooks import to_markdown

_GROUP = 'Reproduce'
# Tables of these pages need the room of a table of contents.
_WIDE = ('results/', 'evaluation', 'measurements')


def on_config(config):
  """Shows the version, and adds records that the navigation does not name."""
  if 'MIKE_DOCS_VERSION' in os.environ:
    config.extra['version'] = {'provider': 'mike'}  # A menu of versions.
  else:
    config.site_name += f' {tfpa.__version__}'
  folder = pathlib.Path(config.docs_dir)
  named = dict(_entries(config.nav))
  paths = sorted(folder.glob('results/*.md'))
  pages = {path.relative_to(folder).as_posix(): path for path in paths}
  records = [
    {_title(path): page} for page, path in pages.items() if page not in named
  ]
  named[_GROUP].append({'Records': records})
  return config


def _entries(nav):
  """Yields (page, page) and (title of a group, its list) of a navigation."""
  for entry in nav:
    for title, content in entry.items() if isinstance(entry, dict) else ():
      if isinstance(content, list):
        yield title, content
        yield from _entries(content)
      else:
        yield content, content
    if isinstance(entry, str):
      yield entry, entry


def on_files(files, config):
  """Adds a page and its images for each notebook, and figures of records."""
  for uri, content in figures.images():
    files.append(File.generated(config, uri, content=content))
  notebooks = [f for f in files if f.src_uri.endswith('.ipynb')]
  for notebook in notebooks:
    path = pathlib.PurePosixPath(notebook.src_uri)
    values = json.loads(notebook.content_string)
    text, images = to_markdown(values, path.stem)
    pages = {f'{path.stem}.md': text, **images}
    for name, content in pages.items():
      uri = (path.parent / name).as_posix()
      files.append(File.generated(config, uri, content=content))
  return files


def on_page_markdown(markdown, page, config, files):
  """Fills in tables from records; links notebooks and their pages."""
  del config
  if page.file.src_uri.startswith(_WIDE):
    page.meta['hide'] = ['toc']
  if templates.is_template(markdown):
    markdown = templates.render(markdown)
  text = re.sub(r'\(([^)\s]+)\.ipynb\)', r'(\1.md)', markdown)
  path = pathlib.PurePosixPath(page.file.src_uri).with_suffix('.ipynb')
  if files.get_file_from_path(str(path)) is not None:
    text += f'\n[This page as a notebook]({path.name})\n'
  return text


def on_page_content(html, page, config, files):
  """Draws formulas, so that a page fetches nothing to show them."""
  del page, config, files
  return formulas.drawn(html)


def _title(path):
  """Returns a page's first heading, else the file's name."""
  found = re.search(r'^#+ (.*)$', path.read_text(encoding='utf-8'), re.M)
  return (found.group(1) if found else path.stem).strip('` ')
