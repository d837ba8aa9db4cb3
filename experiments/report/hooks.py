"""Hooks of MkDocs: tables are filled in, notebooks become pages.

Nothing is written into docs/; pages made here live for one build.
"""

import json
import pathlib
import re

from mkdocs.structure.files import File

from experiments.report import figures
from experiments.report import templates
from experiments.report.notebooks import to_markdown

_RESULTS = 'Results'


def on_config(config):
  """Adds records that the navigation does not name to its `Results`."""
  folder = pathlib.Path(config.docs_dir)
  for entry in config.nav:
    if _RESULTS in entry:
      named = entry[_RESULTS]
      paths = sorted(folder.glob('results/*.md'))
      pages = {path.relative_to(folder).as_posix(): path for path in paths}
      records = [
        {_title(path): page}
        for page, path in pages.items()
        if page not in named
      ]
      entry[_RESULTS] = [*named, {'Records': records}]
  return config


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
  if templates.is_template(markdown):
    markdown = templates.render(markdown)
  text = re.sub(r'\(([^)\s]+)\.ipynb\)', r'(\1.md)', markdown)
  path = pathlib.PurePosixPath(page.file.src_uri).with_suffix('.ipynb')
  if files.get_file_from_path(str(path)) is not None:
    text += f'\n[This page as a notebook]({path.name})\n'
  return text


def _title(path):
  """Returns a page's first heading, else the file's name."""
  found = re.search(r'^#+ (.*)$', path.read_text(encoding='utf-8'), re.M)
  return (found.group(1) if found else path.stem).strip('` ')
